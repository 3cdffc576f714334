"""Programs that know this sandbox's source gain nothing where their inputs share a process.

An even input is one that a program can answer. Of an odd one nobody but the host knows the answer. At an
odd input each program attacks: it must not pass that input, must not see a later input, and the even
inputs stay its own to pass. What a program may gain, the arguments of earlier inputs, is in
`docs/grading.md`.
"""

import asyncio
import secrets

import pytest

from coding_model_project.errors import OverloadError
from coding_model_project.grading.execution import inputs_of, judge_execution
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.types import Call, Isolation, Limits, Problem, Program, Test
from tests.text_cases import text_cases
from tests.unit.sandbox.sources import SOURCES

LIMITS = Limits(cpu_s=0.3, wall_s=3, memory_mb=200, output_kb=64)
N = 4
TRIES = 4
"""Runs of an attack that a busy machine ends: the grader tries again, too."""

BEFORE = SOURCES["before an attack"]

CASES = text_cases(__file__, "shared_attacks.txt")
ATTACKS = {name: source for name, _, source in CASES}
MAY_FAIL_EVEN = {name for name, mark, _ in CASES if mark}
"""Attacks that also harm their own next input."""


def made_problem():
    tests = []
    for n in range(N):
        token = f"later-{secrets.token_hex(8)}"
        secret = [secrets.randbits(60), token]
        tests.append(Test(Call("f", (n, token)), expected=[n, token] if n % 2 == 0 else secret))
    return Problem(
        id="mine/1", split="test", statement="", tests=tuple(tests), limits=LIMITS,
        isolation=Isolation.shared,
    )  # fmt: skip


async def judged(sandbox, source, problem):
    inputs = inputs_of(problem.tests, problem.isolation)
    found = await sandbox.run(Program(source=source), inputs, LIMITS)
    results = [judge_execution(*both, problem) for both in zip(problem.tests, found, strict=True)]
    return found, [result.error is None for result in results]


async def attacked(sandbox, name):
    """Return what an attack achieved; None if nothing."""
    problem = made_problem()
    tokens = [str(test.input.args[1]) for test in problem.tests if isinstance(test.input, Call)]
    for left in reversed(range(TRIES)):
        try:
            found, passed = await judged(sandbox, BEFORE + ATTACKS[name], problem)
            break
        except OverloadError as error:
            if not left:
                return f"{name}: {error}"
    else:
        raise AssertionError
    if len(found) != N or any(passed[1::2]):
        return f"{name}: passes {passed}"
    if not passed[0] or (name not in MAY_FAIL_EVEN and not all(passed[::2])):
        return f"{name}: the other inputs {passed}, {[str(one.status) for one in found]}"
    for index, one in enumerate(found):
        seen = f"{one.stdout}{one.stderr_tail}{one.value}"
        if any(token in seen for token in tokens[index + 1 :]):
            return f"{name}: input {index} knew a later one"
        if one.cpu_s > 2 * LIMITS.cpu_s:
            return f"{name}: {one.cpu_s:.1f} s of CPU at input {index}"
    return None


@pytest.mark.sandbox
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("tier", ["namespaces", "seccomp"])
async def test_no_attack_gains_a_pass_or_a_later_input(tier):
    assert len(ATTACKS) >= 25
    async with EmbeddedSandbox(workers=2, tier=tier) as sandbox:
        gained = await asyncio.gather(*(attacked(sandbox, name) for name in ATTACKS))
        assert not any(gained), "\n".join(filter(None, gained))
        honest = BEFORE + "def attack(n, token): return 0"
        for _ in range(2):
            _, passed = await judged(sandbox, honest, made_problem())
            assert passed == [True, False] * (N // 2)
