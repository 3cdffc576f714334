"""A program in another language than Python, and how it must end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from coding_model_project.sandbox import embedded
from coding_model_project.types import Execution, Limits, Status

LIMITS = Limits(cpu_s=2, wall_s=20, memory_mb=128, output_kb=64)
BRIEF = replace(LIMITS, cpu_s=0.4)
WAITS = replace(LIMITS, wall_s=1.5)
SANDBOX = str(Path(embedded.__file__).parent)
CANARY = "CODING_TEST_CANARY"


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    source: str
    status: Status = Status.finished
    stdout: str | None = None
    said: str = ""
    limits: Limits = LIMITS

    def problem(self, execution: Execution) -> str | None:
        right = (
            execution.status is self.status
            and self.stdout in (None, execution.stdout)
            and self.said in execution.stderr_tail
        )
        return None if right else f"{self.name}: {execution}"


def program(file: str) -> str:
    """Return a program of this folder; SANDBOX in it is the folder of the sandbox's own files."""
    return Path(__file__).with_name(file).read_text().replace("SANDBOX", SANDBOX)
