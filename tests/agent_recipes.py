"""The agents of `docs/agent-recipes.md`, installed as it says. This needs PyPI and npm's registry."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import docs

PAGE = docs.ROOT / "docs" / "agent-recipes.md"
_SAID_CHARS = 800


def recipe(agent: str) -> tuple[str, str]:
    """Return the install lines and the script of an agent's section."""
    section = PAGE.read_text().split(f"\n## {agent}\n")[1].split("\n## ")[0]
    install, script = section.split("```text\n")[1:3]
    return install.split("```")[0], script.split("```")[0]


def installed(agent: str, root: Path) -> Path:
    """Install an agent below a folder, unless it is there, and return its own with the script.

    $AGENT_FOLDERS replaces `root`, to keep installations. Where an agent cannot be installed, the test
    that wants it is skipped, and says what was tried.
    """
    root = Path(os.environ.get("AGENT_FOLDERS") or root)
    tools, place = root / "tools", root / agent.replace(" ", "-")
    lines, script = recipe(agent)
    if not (place / "done").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        try:
            if not (tools / "bin" / "uv").exists():
                _run([sys.executable, "-m", "venv", str(tools)], root)
                _run([str(tools / "bin" / "pip"), "install", "-q", "uv"], root)
            path = f"{tools}/bin:{os.environ['PATH']}"
            _run(["bash", "-ec", lines], place, {**os.environ, "PATH": path})
        except subprocess.CalledProcessError as error:
            pytest.skip(f"cannot install {agent} here: {error.cmd}: {error.stderr[-_SAID_CHARS:]}")
        (place / "done").touch()
    (place / "agent" / "run.sh").write_text(script)
    return place / "agent"


def _run(command: list[str], cwd: Path, env: dict[str, str] | None = None) -> None:
    subprocess.run(command, cwd=cwd, env=env, check=True, text=True, capture_output=True)
