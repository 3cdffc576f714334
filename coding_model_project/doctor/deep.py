"""Real imports of training's packages, each in its own process, and a matrix product."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

from coding_model_project.doctor.findings import Finding, ok, problem
from coding_model_project.doctor.software import kind
from coding_model_project.install import how_to_install

TIMEOUT_S = 300.0

_MATMUL = """
import torch
device = "cuda" if torch.cuda.is_available() else "cpu"
ones = torch.ones(256, 256, device=device)
assert (ones @ ones).sum().item() == 256**3, "a matrix product is wrong"
print(f"torch {torch.__version__}, a matrix product on {device}")
"""

_PLUGIN = """
from coding_model_project.verl_ext.cpu_plugin import check_cpu_plugin
check_cpu_plugin()
from verl.plugin.platform import get_platform
print("verl runs on", get_platform().device_name)
"""

PROGRAMS = {
    "torch": _MATMUL,
    "vllm": "import vllm; print('vllm', vllm.__version__)",
    "ray": "import ray; print('ray', ray.__version__)",
    "verl": "import verl; print('verl', verl.__version__)",
}
"""Program of each process, which prints its finding as the last line."""


def imports() -> Iterator[Finding]:
    """Yield a finding per import."""
    device = "cpu" if kind() == "cpu" else "cuda"
    programs = PROGRAMS | ({"cpu plugin": _PLUGIN} if device == "cpu" else {})
    # As in recipes: the environment selects verl's and vLLM's platform at import.
    first = "from coding_model_project.launch.device import prepare_environment as prepare\n"
    for name, program in programs.items():
        yield run(f"import {name}", f"{first}prepare({device!r})\n{program}")


def run(name: str, program: str, timeout_s: float = TIMEOUT_S) -> Finding:
    """Run a Python program; its last line of output is the finding, or of error output the problem."""
    remedy = f"{how_to_install(gpu=kind() == 'gpu')} installs the versions that work together"
    started = time.monotonic()
    try:
        result = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return problem(
            name, f"timed out after {timeout_s:g} s", "check for a busy machine or a slow disk"
        )
    seconds = time.monotonic() - started
    if result.returncode:
        return problem(name, _last_line(result.stderr) or f"exit code {result.returncode}", remedy)
    return ok(name, f"{_last_line(result.stdout)}; {seconds:.1f} s")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
