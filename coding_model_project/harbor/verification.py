"""A verifier's run in an environment: the tests' files go in, and rewards come out.

Without a reward above 0, there may be a sign that the verifier lacked a network, a tool or a server. It
is only a suspicion: the judged program may have printed it, or left servers running. `trial.Trials` gives
a verdict only from runs in which no such program took part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from coding_model_project.harbor.environment.base import Environment, EnvironmentFailed, Killed
from coding_model_project.harbor.failures import VerifierError, VerifierTimeoutError
from coding_model_project.harbor.format.reward_rules import (
    JSON_FILE,
    TEXT_FILE,
    Rewards,
    check_range,
    main_reward,
    read_rewards,
)
from coding_model_project.harbor.format.task import Step, Task
from coding_model_project.harbor.outcome import StepOutcome
from coding_model_project.isolation.proc_files import oom_kills

TESTS, VERIFIER_LOGS = "/tests", "/logs/verifier"
MAX_KEPT_BYTES = 4 << 20
"""Maximum bytes of a folder of logs that an outcome keeps."""

_NETWORK = re.compile(
    r"could(?:n't| not) resolve|failed to resolve|failure (?:in name resolution|resolving)|"
    r"failed to lookup address|name or service not known|network is unreachable|\bEAI_AGAIN\b|"
    r"\bENOTFOUND\b|dns error",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"connection refused|could not connect|failed to connect|command not found|"
    r": not found$|bad interpreter|required file not found|exec format error|"
    r"^\S*python\S*: no module named|^(?:/usr/bin/)?env: .*no such file",
    re.IGNORECASE | re.MULTILINE,
)
_CODES = {
    126: "its script or last command is not executable",
    127: "its last command does not exist",
}
"""Exit codes of a shell, by POSIX."""

_SHOWN_CHARS = 200
_SEARCHED_CHARS = 1000
_MANY = 5


class VerifierDisturbedError(EnvironmentFailed):
    """A verifier that the machine gave too little CPU time or memory."""

    harbor_name = "EnvironmentFailed"


async def verify(
    task: Task, step: Step, environment: Environment, env: Mapping[str, str], ended: StepOutcome
) -> Rewards:
    """Run a step's verifier and return its rewards.

    Args:
        env: the verifier's variables.
        ended: gets what the verifier said, wrote and lacked, also if it gave no rewards.

    Raises:
        VerifierError: it gave none.
        VerifierDisturbedError: it failed while the kernel killed processes for lack of memory, other
            than at its environment's own limit, or it got hardly any CPU time.
    """
    n_killed = oom_kills()
    left = await environment.listening()
    await environment.begin_verifier()
    await environment.write_tree(TESTS, environment.tests)
    # Without tests of the task's, the verifier's image contains them.
    first = "" if step.tests else f"chmod +x {TESTS}/test.sh; "
    for folder in step.tests:
        await environment.write_tree(TESTS, task.files.tree(folder).executable("test.sh"))
    ran = await environment.run_command(
        f"{first}({TESTS}/test.sh) 2>&1",
        env=env,
        timeout_s=step.verifier.timeout_sec,
        user=step.verifier.user,
    )
    ended.verifier_output, ended.hindered = ran.stdout, hindrance(ran.stdout, ran.exit_code)
    if ran.killed is Killed.starved:
        raise VerifierDisturbedError(
            "the machine is too busy: the verifier got hardly any CPU time"
        )
    rewards: Rewards = {}
    failure: VerifierError | None = None
    try:
        if ran.timed_out:
            raise VerifierTimeoutError(
                f"the verifier did not end within {step.verifier.timeout_sec} s"
            )
        try:
            ended.verifier_files = await environment.read_tree(VERIFIER_LOGS, MAX_KEPT_BYTES)
        except OSError:  # too many or too large
            rewards_only = (JSON_FILE, TEXT_FILE)
            ended.verifier_files = await environment.read_tree(VERIFIER_LOGS, only=rewards_only)
        found = read_rewards(ended.verifier_files)
        check_range(found, task.reward_range)
        rewards = found
    except VerifierError as error:
        failure = error
    reward = main_reward(rewards) or 0.0
    if reward < 1 and oom_kills() > n_killed and not ran.over_memory:
        raise VerifierDisturbedError("the machine ran out of memory during the verifier's run")
    if failure is not None:
        raise failure
    if reward > 0:
        ended.hindered = None
    elif left:  # an image's ENTRYPOINT starts its own again
        gone = sorted(left - await environment.listening())
        ended.hindered = hindrance(ran.stdout, ran.exit_code, gone)
    return rewards


# ── signs that a verifier lacked a network, a tool, an interpreter or a server ────────────────────


def of_network(output: str) -> str | None:
    """Return the first line that reports a name that was not resolved; None without one."""
    return _line(_NETWORK, output)


def hindrance(output: str, exit_code: int, gone: Sequence[int] = ()) -> str | None:
    """Return the sign that a verifier could not work; None without one.

    Args:
        gone: ports of servers that the agent left running, and that ended before the verifier started.
    """
    if gone and not of_network(output):
        named = ", ".join(map(str, gone[:_MANY])) + (", …" if len(gone) > _MANY else "")
        return f"it may need servers that ended with the agent, on port {named}"
    return of_network(output) or _line(_MISSING, output) or _CODES.get(exit_code)


def _line(sign: re.Pattern[str], output: str) -> str | None:
    """Return the first line with a sign. Of a long line the beginning is searched, as that takes time
    quadratic in the length, and programs choose what they print."""
    lines = (line[:_SEARCHED_CHARS] for line in output.splitlines())
    return next((line.strip()[:_SHOWN_CHARS] for line in lines if sign.search(line)), None)
