"""Task folders for tests."""

from pathlib import Path

SIMPLE = {
    "instruction.md": "Do it.\n",
    "environment/Dockerfile": "FROM python:3.12-slim\n",
    "tests/test.sh": "#!/bin/bash\n",
}


def folder(path: Path, toml: str | None = "", **changes: str | None) -> Path:
    """Write a valid task's folder with changes: `tests__test_sh=None` omits tests/test.sh."""
    named = {key.replace("__", "/").replace("_sh", ".sh").replace("_md", ".md"): text
             for key, text in changes.items()}  # fmt: skip
    for name, text in {**SIMPLE, "task.toml": toml, **named}.items():
        if text is not None:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(text)
    return path
