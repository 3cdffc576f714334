"""Judge programs that language models write, and train models on the verdicts.

    import coding_model_project as cmp

    problem = cmp.Problem.simple("Add two numbers.", tests=[cmp.Test(cmp.Stdin("1 2"), expected="3")])
    verdict = cmp.judge(problem, "```python\\nprint(sum(map(int, input().split())))\\n```")
    assert verdict.passed

The names in `__all__` are the public API; everything else may change between versions. Each name is
imported on first use, since the sandbox's own processes import this package too and must stay small.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coding_model_project.api import Judge, judge, load
    from coding_model_project.errors import (
        CheckerError,
        CodingModelError,
        ConfigError,
        DataError,
        SandboxError,
        UngradableError,
    )
    from coding_model_project.harbor.interface import (
        HarborSandbox,
        HarborTask,
        SandboxFactory,
        SandboxResult,
        grade_harbor,
        harbor_sandbox,
        load_harbor_tasks,
    )
    from coding_model_project.types import (
        Asserts,
        Call,
        Checker,
        ErrorType,
        Instruction,
        Limits,
        Problem,
        Stdin,
        Test,
        TestResult,
        Verdict,
    )

__version__ = "0.1.0"

__all__ = [
    "Asserts",
    "Call",
    "Checker",
    "CheckerError",
    "CodingModelError",
    "ConfigError",
    "DataError",
    "ErrorType",
    "HarborSandbox",
    "HarborTask",
    "Instruction",
    "Judge",
    "Limits",
    "Problem",
    "SandboxError",
    "SandboxFactory",
    "SandboxResult",
    "Stdin",
    "Test",
    "TestResult",
    "UngradableError",
    "Verdict",
    "__version__",
    "grade_harbor",
    "harbor_sandbox",
    "judge",
    "load",
    "load_harbor_tasks",
]

_HOMES = ("types", "errors", "api", "harbor.interface")
"""The modules of the public names, the lightest first."""


def __getattr__(name: str) -> object:
    import importlib

    for home in _HOMES if name in __all__ else ():
        module = importlib.import_module(f"{__name__}.{home}")
        if hasattr(module, name):
            globals()[name] = getattr(module, name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
