"""Metrics of a training step's judged samples, which verl's trainer does not compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from coding_model_project.data.training.rows import source_of
from coding_model_project.types import ERROR_GROUPS

CLOCK_KEYS = ("generated_at", "graded_at")
"""Keys of `reward_manager.sample_info` that are clock times, whose averages mean nothing."""


def step_metrics(
    samples: Sequence[Mapping[str, float]],
    rewards: Sequence[float],
    expected: int,
    *,
    since: float = 0.0,
) -> dict[str, float]:
    """Compute the metrics of one step from its judged samples.

    Args:
        samples: `reward_manager.sample_info` of every judged sample.
        rewards: rewards of the same samples.
        expected: number of requested samples; missing ones are infrastructure failures.
        since: when the step first needed its samples, in seconds since the epoch.

    Returns:
        judge/accepted and judge/<error group>: shares of the judged samples, summing to 1.
        judge/public_pass_hidden_fail: share of them that passes the tests that the prompt may show and
        fails the others; a rise means that the policy learns the examples.
        judge/infra_rate: share of the expected samples that could not be judged.
        judge/reward_<part>: mean of each of the reward's parts (`rewards`).
        judge/reward: mean reward of the judged samples, the only ones that are trained on;
        judge/reward_if_infra_were_zero: the mean if the others had scored 0.
        judge/seconds: wall seconds in the sandbox; judge/cache_hits: share of cache hits.
        judge/wait_s: wall seconds by which waiting for rewards lengthens the step, from the end of
        the last generation (not before `since`) to the last verdict.
    """
    if not samples:
        return {"judge/infra_rate": 1.0}
    n = len(samples)

    def mean(key: str) -> float:
        return sum(sample[key] for sample in samples) / n

    return {
        "judge/accepted": mean("acc"),
        "judge/pass_fraction": mean("pass_fraction"),
        **{f"judge/{group}": mean(str(group)) for group in ERROR_GROUPS},
        "judge/public_pass_hidden_fail": mean("public_pass_hidden_fail"),
        "judge/infra_rate": max(0.0, 1.0 - n / expected),
        "judge/reward": sum(rewards) / n,
        "judge/reward_if_infra_were_zero": sum(rewards) / max(n, expected),
        **{f"judge/{key}": mean(key) for key in samples[0] if key.startswith("reward_")},
        "judge/seconds": sum(sample["judge_s"] for sample in samples),
        "judge/cache_hits": mean("cached"),
        "judge/wait_s": max(
            0.0,
            max(s["graded_at"] for s in samples)
            - max(since, max(s["generated_at"] for s in samples)),
        ),
    }


@dataclass(frozen=True, slots=True)
class Judged:
    """Fields of a judged sample for the metrics of its source."""

    problem: str
    reward: float
    accepted: float
    tokens: int
    """Number of tokens of the response."""


def source_metrics(samples: Sequence[Judged], lost: Sequence[str]) -> dict[str, float]:
    """Compute the metrics of one step by data source; none if the step has one source.

    Args:
        samples: all judged samples.
        lost: problem of each sample that could not be judged.

    Returns:
        source/<name>/reward, /accepted and /tokens: means over the source's judged samples;
        source/<name>/share: its share of the judged samples; source/<name>/infra_rate: the share of its
        samples that could not be judged.
    """
    by_source: dict[str, list[Judged]] = {}
    for sample in samples:
        by_source.setdefault(source_of(sample.problem), []).append(sample)
    missing = Counter(map(source_of, lost))
    metrics: dict[str, float] = {}
    for name in sorted(by_source.keys() | missing.keys()):
        own, n_lost = by_source.get(name, []), missing[name]
        if own:
            metrics[f"source/{name}/reward"] = fmean(sample.reward for sample in own)
            metrics[f"source/{name}/accepted"] = fmean(sample.accepted for sample in own)
            metrics[f"source/{name}/tokens"] = fmean(sample.tokens for sample in own)
            metrics[f"source/{name}/share"] = len(own) / len(samples)
        metrics[f"source/{name}/infra_rate"] = n_lost / (n_lost + len(own))
    return metrics if len(by_source.keys() | missing.keys()) > 1 else {}


def repair_metrics(samples: Sequence[Mapping[str, float]], rounds: int) -> dict[str, float]:
    """Compute the metrics of one step's episodes with repairs.

    Args:
        samples: `reward_manager.sample_info` and `episode_info` of every judged sample.
        rounds: `coding.repair.rounds`.

    Returns:
        repair/rounds: mean repairs per episode; repair/tried: share with any; repair/repaired: share
        accepted after one; repair/accepted_by_round_<r>: share accepted with at most r repairs, which
        rises to judge/accepted; repair/judge_s: wall seconds in the sandbox for public tests between
        attempts.
    """
    if not samples:
        return {}
    n = len(samples)
    accepted = [sample["repairs"] for sample in samples if sample["acc"]]
    return {
        "repair/rounds": sum(sample["repairs"] for sample in samples) / n,
        "repair/tried": sum(sample["repairs"] > 0 for sample in samples) / n,
        "repair/repaired": sum(sample["repaired"] for sample in samples) / n,
        **{
            f"repair/accepted_by_round_{round_}": sum(used <= round_ for used in accepted) / n
            for round_ in range(rounds + 1)
        },
        "repair/judge_s": sum(sample["public_judge_s"] for sample in samples),
    }


def bash_metrics(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Compute the metrics of one step's episodes of the bash agent.

    Args:
        samples: `reward_manager.sample_info` and `bash_info` of every judged sample.

    Returns:
        bash/commands: mean commands per episode; bash/command_s: mean seconds of its commands;
        bash/failed_commands: mean commands with an exit code other than 0;
        bash/ended_<ending>: share of the episodes with this ending, summing to 1.
    """
    names = [key for key in samples[0] if key.startswith("bash_")] if samples else []
    return {
        f"bash/{name.removeprefix('bash_')}": sum(sample[name] for sample in samples) / len(samples)
        for name in names
    }


def agent_metrics(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Compute the metrics of one step's samples that are an agent's work.

    Args:
        samples: `reward_manager.sample_info` and `agent_info` of every judged sample.

    Returns:
        agent/turns, /commands, /conversations: mean replies, commands by /v1/shell and trained
        conversations per sample; agent/s: mean seconds of its work; agent/untrained_tokens: the step's
        generated tokens that are not trained on; agent/ended_<ending>: share of the samples with this
        ending, summing to 1.
    """
    names = [key for key in samples[0] if key.startswith("agent_")] if samples else []
    means = {
        f"agent/{name.removeprefix('agent_')}": sum(s[name] for s in samples) / len(samples)
        for name in names
    }
    if "agent/untrained_tokens" in means:
        means["agent/untrained_tokens"] *= len(samples)
    return means
