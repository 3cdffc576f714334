"""Detection of the strongest tier that this machine allows, by confining a program in each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from coding_model_project.errors import SandboxError
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded.slot import Slot, ZygoteLost
from coding_model_project.types import Execution, Limits, Program, Status, Stdin

_LIMITS = Limits(cpu_s=5.0, wall_s=10.0, memory_mb=256, output_kb=64)

_ESCAPES = Program(
    source="""
import os, socket
attempts = {
    "network": lambda: socket.socket(),
    "processes": lambda: os.fork(),
    "host files": lambda: open("/etc/hostname").close() or os.listdir("/proc"),
    "writing": lambda: open("/usr/lib/.written", "w"),
    "attributes": lambda: os.chmod("/usr/lib", 0o755),
    "signals": lambda: os.kill(os.getppid() or 2, 0),
}
for name, attempt in attempts.items():
    try:
        attempt()
        print(name)
    except OSError:
        pass
"""
)
"""A program that prints the name of each forbidden action that succeeded."""


def strongest(minimum: Tier, python: str, preload: Sequence[str] = ()) -> Tier:
    """Return the strongest available tier.

    Raises:
        SandboxError: none is as strong as `minimum`; names what each lacks, and the remedy.
    """
    missing = []
    for tier in reversed(Tier):
        if not tier.at_least(minimum):
            break
        problem = why_not(tier, python, tuple(preload))
        if problem is None:
            return tier
        missing.append(f"{tier}: {problem}")
    raise SandboxError(
        f"no sandbox tier at or above {minimum} works here ({'; '.join(missing)}); allow user"
        " namespaces or use a kernel ≥ 5.13 with Landlock, or accept a lower min_tier"
        " (coding.sandbox.min_tier)"
    )


@lru_cache
def why_not(tier: Tier, python: str, preload: tuple[str, ...] = ()) -> str | None:
    """Return why a tier does not work here, or None if it works; starts and stops a zygote."""
    slot = Slot(tier, python, preload)
    executions: list[Execution] = []
    try:
        slot.run(_ESCAPES, [Stdin("")], _LIMITS, executions, lambda _index, _execution: False)
    except (SandboxError, ZygoteLost) as error:
        return str(error)
    finally:
        slot.stop()
    (answer,) = executions
    if answer.status is not Status.finished:
        return f"the self-test ended with {answer.status}: {answer.stderr_tail[-200:]}"
    if answer.stdout and tier is not Tier.rlimit:
        return f"the self-test was not denied: {', '.join(answer.stdout.splitlines())}"
    return None
