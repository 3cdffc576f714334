"""The samples of a step: rows for rollouts.jsonl, tables for the trackers, a trace of the step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.rollouts import Rollout, RolloutWriter
from coding_model_project.runs.step_traces import Span, write_trace
from coding_model_project.verl_ext.rewards.reward_manager import SAMPLE_KEY
from coding_model_project.verl_ext.trainers.loggers import log_samples
from coding_model_project.verl_ext.trainers.step_metrics import Judged


@dataclass(frozen=True, slots=True, kw_only=True)
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


def judged(sample: Sampled) -> Judged:
    """Return the fields of a sample for the metrics of its source."""
    about = json.loads(sample.info[SAMPLE_KEY])
    return Judged(about["problem"], sample.reward, sample.info["acc"], about["tokens"])


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
            shown = _spread(samples, self._keys.samples)
            log_samples(backends, list(self._rows(step, split, shown)), step)
        if split == "train" and _due(step, self._keys.trace_every):
            write_trace(self._traces, step, _spans(samples))

    def _rows(self, step: int, split: str, samples: Sequence[Sampled]) -> Iterator[Rollout]:
        for sample in samples:
            about = json.loads(sample.info[SAMPLE_KEY])
            yield Rollout(
                step=step,
                attempt=self._attempt,
                split=split,
                problem=about["problem"],
                sample=sample.key,
                prompt=sample.prompt(),
                completion=sample.completion(),
                tokens=about["tokens"],
                reward=sample.reward,
                reward_parts=about["parts"],
                verdict=about["verdict"],
                generated_at=sample.info["generated_at"],
                graded_at=sample.info["graded_at"],
                advantage=sample.advantage,
                extra=about["extra"],
            )

    def close(self) -> None:
        """Wait until all rows are written.

        Raises:
            OSError: rows could not be written.
        """
        self._writer.close()


def _due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _spread(samples: Sequence[Sampled], n: int) -> list[Sampled]:
    """Return n evenly spaced samples, which belong to different problems."""
    stride = max(1, len(samples) // n)
    return list(samples[::stride])[:n]


def _spans(samples: Sequence[Sampled]) -> Iterator[Span]:
    """Yield spans of each sample's generation, from the step's first sample on, and of its judging."""
    began = min(sample.info["generated_at"] for sample in samples)
    for sample in samples:
        about = json.loads(sample.info[SAMPLE_KEY])
        error = about["verdict"]["error"]
        generated_at, graded_at = sample.info["generated_at"], sample.info["graded_at"]
        arguments = {"sample": sample.key, "error": error, "tokens": about["tokens"]}
        yield Span(
            track="generated after the first",
            name=about["problem"],
            start=began,
            end=generated_at,
            arguments=arguments,
        )
        yield Span(
            track="judging, with waiting for a free sandbox",
            name=error or "accepted",
            start=generated_at,
            end=graded_at,
            arguments=arguments,
        )
