"""Task folders for tests."""

from pathlib import Path

SIMPLE = {
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM python:3.12-slim\n",
    "tests/test.sh": "#!/bin/bash\n",
}


CHECK = "#!/bin/bash\ncat /app/answer > /logs/verifier/reward.txt\n"
"""A verifier whose reward is what the agent wrote."""


def solvable(path: Path, toml: str = "", solve: str = "", **changes: str) -> Path:
    """Write a task for rooms that `solve` solves; its reward is what the agent writes to /app/answer."""
    image = "FROM debian\nWORKDIR /app\n"
    files = {"environment__Dockerfile": image, "tests__test_sh": CHECK}
    return folder(
        path, toml, **{**files, "solution__solve_sh": f"#!/bin/bash\n{solve}\n", **changes}
    )


def program(path: Path, text: str) -> Path:
    """Write a shell script that can be executed, such as one that stands in for a container engine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def folder(path: Path, toml: str | None = "", **changes: str | None) -> Path:
    """Write a valid task's folder with changes: `tests__test_sh=None` omits tests/test.sh."""
    named = {key.replace("__", "/").replace("_sh", ".sh").replace("_md", ".md"): text
             for key, text in changes.items()}  # fmt: skip
    for name, text in {**SIMPLE, "task.toml": toml, **named}.items():
        if text is not None:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text)
    return path
