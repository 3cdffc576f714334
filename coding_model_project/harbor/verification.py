"""A verifier's run in an environment: the tests' files go in, and rewards come out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from coding_model_project.control_groups import oom_kills
from coding_model_project.harbor.environment import tree
from coding_model_project.harbor.environment.base import Environment, EnvironmentFailed, Killed
from coding_model_project.harbor.environment.tree import Tree, of_files
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
from coding_model_project.harbor.trial_outcome import MAX_KEPT_BYTES

TESTS, VERIFIER_LOGS = "/tests", "/logs/verifier"


class VerifierDisturbedError(EnvironmentFailed):
    """A verifier that the machine gave too little CPU time or memory."""

    harbor_name = "EnvironmentFailed"


class Verification:
    """A step's verifier, and what it said, also if it gave no rewards."""

    def __init__(self) -> None:
        self.output = ""
        self.files = Tree()
        """Its files in /logs/verifier."""
        self.exit_code = 0
        self.ended: tuple[int, ...] = ()
        """Ports of servers that the agent left running, and that ended before the verifier started. Only
        known if the main reward is below 1."""
        self._over_memory = False

    async def run(
        self,
        task: Task,
        step: Step,
        environment: Environment,
        env: Mapping[str, str],
    ) -> Rewards:
        """Run a step's verifier and return its rewards.

        Args:
            env: the verifier's variables.

        Raises:
            VerifierError: it gave none.
            VerifierDisturbedError: it failed while the kernel killed processes for lack of memory, other
                than at its environment's own limit, or it got hardly any CPU time.
        """
        n_killed = oom_kills()
        rewards: Rewards = {}
        failure: VerifierError | None = None
        try:
            rewards = await self._rewards(task, step, environment, env)
        except VerifierError as error:
            failure = error
        killed_by_kernel = oom_kills() > n_killed and not self._over_memory
        if (main_reward(rewards) or 0.0) < 1 and killed_by_kernel:
            raise VerifierDisturbedError("the machine ran out of memory during the verifier's run")
        if failure is not None:
            raise failure
        return rewards

    async def _rewards(
        self,
        task: Task,
        step: Step,
        environment: Environment,
        env: Mapping[str, str],
    ) -> Rewards:
        left = await environment.listening()
        await environment.begin_verifier()
        await environment.write_tree(TESTS, environment.tests)
        script, first = "test.sh", ""
        if not step.tests:  # the verifier's image contains them
            first = f"chmod +x {TESTS}/{script}; "
        for folder in step.tests:
            own = ((str(path), folder / path) for path in task.files.selected(folder))
            await environment.write_tree(TESTS, of_files(own).executable(script))
        ended = await environment.run_command(
            f"{first}({TESTS}/{script}) 2>&1",
            env=env,
            timeout_s=step.verifier.timeout_sec,
            user=step.verifier.user,
        )
        self.output, self.exit_code = ended.stdout, ended.exit_code
        self._over_memory = ended.over_memory
        if ended.killed is Killed.starved:
            raise VerifierDisturbedError(
                "the machine is too busy: the verifier got hardly any CPU time"
            )
        if ended.timed_out:
            raise VerifierTimeoutError(
                f"the verifier did not end within {step.verifier.timeout_sec} s"
            )
        self.files = await _verifier_files(environment)
        rewards = _rewards(self.files)
        if left and (main_reward(rewards) or 0.0) < 1:  # an image's ENTRYPOINT starts its own again
            self.ended = tuple(sorted(left - await environment.listening()))
        check_range(rewards, task.reward_range)
        return rewards


async def _verifier_files(environment: Environment) -> Tree:
    """Return the verifier's files, or only the reward files if all are too many or too large."""
    try:
        return await environment.read_tree(VERIFIER_LOGS, MAX_KEPT_BYTES)
    except OSError:
        return await environment.read_tree(VERIFIER_LOGS, only=(JSON_FILE, TEXT_FILE))


def _rewards(files: Tree) -> Rewards:
    """Return the rewards in the verifier's files.

    Raises:
        VerifierError: there are none; the subclass has Harbor's name for the reason.
    """
    rewards = files.only((JSON_FILE, TEXT_FILE))
    with TemporaryDirectory(prefix="rewards-") as folder:
        tree.unpack(folder, rewards.entries, rewards.body)  # links too, which earn no reward
        return read_rewards(Path(folder))
