"""The judged samples of a step: metrics, rows for rollouts.jsonl, tables for the trackers, a trace in
Chrome's format (to open in Perfetto).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import fmean
from textwrap import indent
from typing import Any

from omegaconf import DictConfig

from coding_model_project.data.training.rows import source_of
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.rollouts import Rollout, RolloutWriter
from coding_model_project.types import ERROR_GROUPS
from coding_model_project.verl_ext.rewards.reward_manager import SAMPLE_KEY


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """A sample from verl, with texts as functions since decoding takes time."""

    key: str
    prompt: Callable[[], str]
    completion: Callable[[], str]
    info: Mapping[str, Any]
    """`reward_manager.CodeRewardManager.run_single`'s reward_extra_info."""
    reward: float
    advantage: float | None = None
    """Mean over the sample's tokens."""

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """The reward manager's record of it: problem, verdict, tokens, the reward's parts."""
        return json.loads(self.info[SAMPLE_KEY])


def trained_samples(
    tokenizer: Any, keys: Sequence[str], fields: Any, infos: Sequence[Mapping[str, Any]]
) -> list[Sampled]:
    """Return the samples of a training step.

    Args:
        fields: TransferQueue's prompts, responses (token ids), rm_scores and advantages (per token), one
            row per key.
        infos: reward_extra_info of each sample.
    """
    decode = partial(tokenizer.decode, skip_special_tokens=True)
    names = ("prompts", "responses", "rm_scores", "advantages", "response_mask")
    rows = zip(keys, *(fields[name] for name in names), infos, strict=True)
    return [
        Sampled(
            key=key,
            prompt=partial(decode, prompt),
            completion=partial(decode, response),
            info=info,
            reward=float(scores.sum()),
            advantage=float((advantages * mask).sum() / mask.sum().clamp(min=1)),
        )
        for key, prompt, response, scores, advantages, mask, info in rows
    ]


def validated_samples(
    uids: Sequence[str],
    prompts: Sequence[str],
    completions: Sequence[str],
    scores: Sequence[float],
    infos: Mapping[str, Sequence[Any]],
) -> list[Sampled]:
    """Return the samples of a validation; `infos` holds a list per key of reward_extra_info."""
    rows = zip(uids, prompts, completions, scores, zip(*infos.values(), strict=True), strict=True)
    return [
        Sampled(
            key=uid,
            prompt=partial(str, prompt),
            completion=partial(str, completion),
            info=dict(zip(infos, values, strict=True)),
            reward=score,
        )
        for uid, prompt, completion, score, values in rows
    ]


class SampleLog:
    """A log of steps' samples, configured by `coding.rollouts`, that does not block the steps."""

    def __init__(self, config: DictConfig) -> None:
        run = RunFolder(Path(config.coding.run_dir))
        self._keys = config.coding.rollouts
        self._attempt = run.last_number
        self._traces = run.traces
        self._writer = RolloutWriter(run.path)

    def step(
        self, step: int, split: str, samples: Sequence[Sampled], backends: dict[str, Any]
    ) -> None:
        """Log one step's samples.

        Args:
            split: "train" or "validation".
            backends: verl's trackers by name.

        Raises:
            OSError: rows of an earlier step could not be written.
        """
        if split == "validation" or _due(step, self._keys.every):
            self._writer.write(self._rows(step, split, samples))
        if split == "train" and self._keys.samples and _due(step, self._keys.samples_every):
            stride = max(1, len(samples) // self._keys.samples)  # of different problems
            shown = samples[::stride][: self._keys.samples]
            _log_table(backends, list(self._rows(step, split, shown)), step)
        if split == "train" and _due(step, self._keys.trace_every):
            write_trace(self._traces, step, _spans(samples))

    def _rows(self, step: int, split: str, samples: Sequence[Sampled]) -> Iterator[Rollout]:
        for sample in samples:
            yield Rollout(
                step=step,
                attempt=self._attempt,
                split=split,
                problem=sample.about["problem"],
                sample=sample.key,
                prompt=sample.prompt(),
                completion=sample.completion(),
                tokens=sample.about["tokens"],
                reward=sample.reward,
                reward_parts=sample.about["parts"],
                verdict=sample.about["verdict"],
                generated_at=sample.info["generated_at"],
                graded_at=sample.info["graded_at"],
                advantage=sample.advantage,
                extra=sample.about["extra"],
            )

    def close(self) -> None:
        """Wait until all rows are written.

        Raises:
            OSError: rows could not be written.
        """
        self._writer.close()


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _spans(samples: Sequence[Sampled]) -> Iterator[Span]:
    """Yield spans of each sample's generation, from the step's first sample on, and of its judging."""
    began = min(sample.info["generated_at"] for sample in samples)
    for sample in samples:
        error = sample.about["verdict"]["error"]
        generated_at, graded_at = sample.info["generated_at"], sample.info["graded_at"]
        arguments = {"sample": sample.key, "error": error, "tokens": sample.about["tokens"]}
        yield "generated after the first", sample.about["problem"], began, generated_at, arguments
        judging = "judging, with waiting for a free sandbox"
        yield judging, error or "accepted", generated_at, graded_at, arguments


_CELL_CHARACTERS = 4_000
_COLUMNS = ("problem", "verdict", "reward", "completion", "detail")


def _log_table(backends: dict[str, Any], samples: Sequence[Rollout], step: int) -> None:
    """Log a table of samples to W&B and TensorBoard, if they are among verl's tracking backends."""
    rows = [
        (
            sample.problem,
            sample.verdict["error"] or "accepted",
            sample.reward,
            sample.completion[:_CELL_CHARACTERS],
            sample.verdict["detail"],
        )
        for sample in samples
    ]
    if "wandb" in backends:
        import wandb

        table = wandb.Table(columns=list(_COLUMNS), data=[list(row) for row in rows])
        wandb.log({"samples": table}, step=step)
    if "tensorboard" in backends:
        # One section per sample, since TensorBoard's tables drop the line breaks of code.
        text = "\n\n".join(
            f"**{problem}**: {verdict}, reward {reward:g} {detail}\n\n{indent(completion, ' ' * 4)}"
            for problem, verdict, reward, completion, detail in rows
        )
        backends["tensorboard"].writer.add_text("samples", text, step)


Span = tuple[str, str, float, float, Mapping[str, float | str | None]]
"""Track and name of a time span, its start and end in seconds since the epoch, and its arguments."""


def write_trace(folder: Path, step: int, spans: Iterable[Span]) -> None:
    """Write `step_NNNNNN.json`; overlapping spans of a track get separate rows."""
    events = []
    tracks: dict[str, int] = {}
    rows: dict[str, list[float]] = {}  # per track, the time at which each row is free
    for track, name, start, end, arguments in sorted(spans, key=lambda span: span[2]):
        free = rows.setdefault(track, [])
        row = next((n for n, until in enumerate(free) if until <= start), len(free))
        free[row : row + 1] = [end]
        place = {"pid": tracks.setdefault(track, len(tracks) + 1), "tid": row}
        times = {"ts": start * 1e6, "dur": (end - start) * 1e6}
        events.append({"name": name, "ph": "X", **times, **place, "args": dict(arguments)})
    names = [
        {"name": "process_name", "ph": "M", "pid": number, "args": {"name": track}}
        for track, number in tracks.items()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"step_{step:06d}.json").write_text(json.dumps({"traceEvents": names + events}))


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


def source_metrics(samples: Sequence[Sampled], lost: Sequence[str]) -> dict[str, float]:
    """Compute the metrics of one step by data source; none if the step has one source.

    Args:
        samples: all judged samples.
        lost: problem of each sample that could not be judged.

    Returns:
        source/<name>/reward, /accepted and /tokens: means over the source's judged samples;
        source/<name>/share: its share of the judged samples; source/<name>/infra_rate: the share of its
        samples that could not be judged.
    """
    by_source: dict[str, list[Sampled]] = {}
    for sample in samples:
        by_source.setdefault(source_of(sample.about["problem"]), []).append(sample)
    missing = Counter(map(source_of, lost))
    metrics: dict[str, float] = {}
    for name in sorted(by_source.keys() | missing.keys()):
        own, n_lost = by_source.get(name, []), missing[name]
        if own:
            metrics[f"source/{name}/reward"] = fmean(sample.reward for sample in own)
            metrics[f"source/{name}/accepted"] = fmean(sample.info["acc"] for sample in own)
            metrics[f"source/{name}/tokens"] = fmean(sample.about["tokens"] for sample in own)
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


def work_metrics(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Compute the metrics of one step's samples that are episodes of the bash agent, or an agent's work.

    Args:
        samples: `reward_manager.sample_info`, with `bash_info` or `agent_info`, of every judged sample.

    Returns:
        bash/commands: mean commands per episode; bash/command_s: mean seconds of its commands;
        bash/failed_commands: mean commands with an exit code other than 0.
        agent/turns, /commands, /conversations: mean replies, commands by /v1/shell and trained
        conversations per sample; agent/s: mean seconds of its work; agent/untrained_tokens: the step's
        generated tokens that are not trained on.
        bash/ended_<ending>, agent/ended_<ending>: share of the samples with this ending, summing to 1.
    """
    names = [key for key in samples[0] if key.startswith(("bash_", "agent_"))] if samples else []
    found = {name.replace("_", "/", 1): fmean(sample[name] for sample in samples) for name in names}
    if "agent/untrained_tokens" in found:
        found["agent/untrained_tokens"] *= len(samples)
    return found
