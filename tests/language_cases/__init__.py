"""Programs in each language but Python that the embedded sandbox runs, and how they must end.

`LANGUAGE.txt` has a program after each line `=== name | {"status": …}`, or its `file` here has it. Words
in it stand for what only the test knows (`_WORDS`).
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from coding_model_project.sandbox import embedded
from coding_model_project.types import Execution, Limits, Status
from tests.text_cases import text_cases

LIMITS = Limits(cpu_s=2, wall_s=20, memory_mb=128, output_kb=64)
CANARY = "CODING_TEST_CANARY"
_LIMITS = {"brief": replace(LIMITS, cpu_s=0.4), "waits": replace(LIMITS, wall_s=1.5)}
_WORDS = {
    "SANDBOX": str(Path(embedded.__file__).parent),
    "CANARY": CANARY,
    "NUL": "\0",
    "CONSTANTS": " + ".join(f'"{n}" + System.nanoTime()' for n in range(30_000)),
}


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


def program(text: str) -> str:
    for word, meant in _WORDS.items():
        text = text.replace(word, meant)
    return text


def _case(name: str, mark: str, text: str) -> Case:
    about = json.loads(mark or "{}")
    if file := about.pop("file", None):
        text = Path(__file__).with_name(file).read_text()
    status = Status(about.pop("status", Status.finished))
    limits = _LIMITS.get(about.pop("limits", ""), LIMITS)
    return Case(name, program(text.removesuffix("\n")), status, limits=limits, **about)


CASES = {
    language: tuple(_case(*one) for one in text_cases(__file__, f"{language}.txt"))
    for language in ("c", "cpp", "javascript", "java", "go", "rust", "perl", "bash")
}
BASH_ATTEMPTS = program(Path(__file__).with_name("attempts.sh").read_text())
