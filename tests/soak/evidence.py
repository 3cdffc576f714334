"""Comparison of a run's records with the truth: no outage may have reached the loss.

Every recorded completion is judged again by the embedded sandbox. Advantages and the loss are
computed from those verdicts alone, by the formulas of GRPO, and compared with what was trained on.
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf

from coding_model_project.configs.schema import coding_of
from coding_model_project.data.problems import read_problems
from coding_model_project.grading.judge import open_judge
from coding_model_project.grading.rewards import RewardKind, reward_function
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.rollouts import Rollout, read_all_rollouts, read_ungradable
from coding_model_project.sandbox.sandbox_config import SandboxConfig

_EPSILON = 1e-6
"""The constant that verl's GRPO adds to a group's standard deviation."""

_TOLERANCE = 1e-4
"""Tolerance of sums of 32-bit floats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One training step."""

    step: int
    trained: int
    ungradable: int
    alone: int
    """Number of samples that lost all others of their group."""
    wrong_verdicts: int
    """Number of samples whose reward differs from that of their true verdict."""
    worst_advantage: float
    """The largest difference between a recorded advantage and the true one."""
    loss: float
    """The loss that verl reports."""
    true_loss: float
    """The loss from the true advantages, by verl's formula at the first update (ratio 1)."""
    reward: float
    reward_if_zero: float
    infra_rate: float

    def faults(self, expected: int) -> list[str]:
        """Return the violations in a step with this expected number of samples."""
        checks = {
            f"{self.wrong_verdicts} rewards are not those of the true verdicts": self.wrong_verdicts,
            f"an advantage is off by {self.worst_advantage:.2g}": self.worst_advantage > _TOLERANCE,
            f"loss {self.loss:.5f}, true {self.true_loss:.5f}": abs(self.loss - self.true_loss)
            > _TOLERANCE,
            f"{self.trained} trained and {self.ungradable} left out of {expected}": self.trained
            + self.ungradable
            != expected,
            f"infra_rate {self.infra_rate:.3f} is logged": abs(
                self.infra_rate - self.ungradable / expected
            )
            > _TOLERANCE,
        }
        return [f"step {self.step}: {what}" for what, is_so in checks.items() if is_so]


async def evidence(run: RunFolder) -> list[Evidence]:
    """Return the evidence of each training step of a run with one attempt."""
    rows = [row for row in read_all_rollouts(run.path) if row.split == "train"]
    truth = await _true_rewards(run, rows)
    left_out = list(read_ungradable(run.path))
    lines = (json.loads(line) for line in run.metrics.read_text().splitlines())
    metrics = {line["step"]: line["data"] for line in lines if "judge/infra_rate" in line["data"]}
    return [
        _of_step(
            step,
            [row for row in rows if row.step == step],
            truth,
            sum(row.step == step for row in left_out),
            metrics[step],
        )
        for step in sorted(metrics)
    ]


async def _true_rewards(run: RunFolder, rows: Sequence[Rollout]) -> dict[tuple[str, str], float]:
    """Return the embedded sandbox's rewards by problem and completion."""
    config = DictConfig(OmegaConf.load(run.config))
    coding = coding_of(config)
    problems = {p.id: p for path in coding.problems for p in read_problems(path)}
    reward = reward_function(coding.reward.kind)
    truth = {}
    early = coding.reward.kind == RewardKind.sparse
    async with open_judge(SandboxConfig(), style=coding.prompt, stop_early=early) as judge:
        for row in rows:
            problem = problems[row.problem]
            verdict = await judge.hidden.grade(problem, row.completion)
            truth[row.problem, row.completion] = reward(problem, verdict).total
    return truth


def _of_step(
    step: int,
    rows: Sequence[Rollout],
    truth: Mapping[tuple[str, str], float],
    ungradable: int,
    metrics: Mapping[str, float],
) -> Evidence:
    groups = defaultdict(list)
    for row in rows:
        groups[row.sample.rsplit("_", 2)[0]].append(row)
    differences, weighted = [0.0], 0.0
    for group in groups.values():
        rewards = [truth[row.problem, row.completion] for row in group]
        for row, advantage in zip(group, advantages(rewards), strict=True):
            assert row.advantage is not None
            differences.append(abs(row.advantage - advantage))
            weighted += advantage * row.tokens
    wrong = sum(truth[row.problem, row.completion] != row.reward for row in rows)
    return Evidence(
        step=step,
        trained=len(rows),
        ungradable=ungradable,
        alone=sum(len(group) == 1 for group in groups.values()),
        wrong_verdicts=wrong,
        worst_advantage=max(differences),
        loss=metrics["actor/pg_loss"],
        true_loss=-weighted / max(1, sum(row.tokens for row in rows)),
        reward=metrics["judge/reward"],
        reward_if_zero=metrics["judge/reward_if_infra_were_zero"],
        infra_rate=metrics["judge/infra_rate"],
    )


def advantages(rewards: Sequence[float]) -> list[float]:
    """Return GRPO's advantages of one group; a single sample has no comparison."""
    if len(rewards) == 1:
        return [0.0]
    mean, deviation = statistics.mean(rewards), statistics.stdev(rewards)
    return [(reward - mean) / (deviation + _EPSILON) for reward in rewards]
