"""Sampling protocols: frozen settings with names, and a hash over all that a number depends on.

Numbers may be compared if their hashes are equal: the same settings, prompt, rules of extraction and
judging, and the same problems. What generates (a local engine, a server) and where programs run are
not part of it; run_info.json records them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import orjson

from coding_model_project.data.problems import problem_line
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.backends.generation import Sampling
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.grading.observation import MIN_BYTES
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.types import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalProtocol:
    """How a model is asked and judged.

    A program that runs out of time on a test is not run on further ones; they count as not passed. One
    that never ends would otherwise cost its time limit on each of a problem's hundreds of tests.
    """

    name: str
    sampling: Sampling
    """`sampling.n` samples of each problem."""
    prompt: PromptStyle = PromptStyle.fenced
    system_prompt: str | None = None
    """The conversation's first message, if any."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """More fields of the requests to a server."""
    stop_early: bool = False
    """Judge a program until its first failing test only: faster, and there is no pass ratio."""
    repair_rounds: int = 0
    """How often an answer that fails a public test may be repaired (`repair`), within its sample."""
    observation_bytes: int = 600
    """Longest test and outcome that the model is shown for it."""
    grader_version: str = GRADER_VERSION
    """The rules of extraction and comparison."""

    def __post_init__(self) -> None:
        sampling = self.sampling
        if sampling.n < 1 or sampling.max_tokens < 1 or sampling.temperature < 0:
            raise ConfigError(
                f"protocol {self.name}: n={sampling.n}, max_tokens={sampling.max_tokens} and "
                f"temperature={sampling.temperature:g}: counts are at least 1, a temperature 0"
            )
        if self.repair_rounds < 0 or self.observation_bytes < MIN_BYTES:
            raise ConfigError(
                f"protocol {self.name}: repair_rounds={self.repair_rounds} is at least 0, and "
                f"observation_bytes={self.observation_bytes} at least {MIN_BYTES}"
            )
        if sampling.temperature == 0 and sampling.n > 1:
            raise ConfigError(
                f"protocol {self.name}: {sampling.n} greedy samples of a problem are all the same; "
                "set a temperature, or n=1"
            )

    @property
    def ks(self) -> tuple[int, ...]:
        """The k of the pass@k that are reported: powers of two, and the number of samples."""
        n = self.sampling.n
        return tuple(sorted({1 << i for i in range(n.bit_length())} | {n}))

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> EvalProtocol:
        """Read a protocol from a run_info.json; the reverse of `described`.

        Raises:
            TypeError, ValueError, KeyError: it lacks a setting, or has one that is not known.
        """
        settings = {name: value for name, value in record.items() if name != "hash"}
        sampling = dict(settings.pop("sampling"))
        sampling["stop"] = tuple(sampling.get("stop", ()))
        return cls(
            **{
                **settings,
                "sampling": Sampling(**sampling),
                "prompt": PromptStyle(settings["prompt"]),
                "grader_version": str(settings["grader_version"]),
            }
        )

    def judged_today(self) -> EvalProtocol:
        """Return the same protocol with today's rules of extraction and comparison."""
        return replace(self, grader_version=GRADER_VERSION)

    def described(self, versions: Mapping[str, str]) -> dict[str, Any]:
        """Settings and hash, as run_info.json has them.

        Args:
            versions: of the data sets, by name (`data_version`).
        """
        settings = asdict(self) | {"sampling": self.sampling.described()}
        if not self.repair_rounds:  # plays no part
            del settings["repair_rounds"], settings["observation_bytes"]
        for name in ("system_prompt", "extra_body"):
            if not settings[name]:
                del settings[name]
        digest = protocol_hash(settings, versions)
        return {"name": settings.pop("name"), "hash": digest, **settings}


def protocol_hash(settings: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Hash a protocol's settings, its name included, with the versions of its data sets."""
    content = orjson.dumps([dict(settings), dict(versions)], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(content).hexdigest()[:16]


GREEDY = EvalProtocol(name="greedy", sampling=Sampling(max_tokens=2048))
"""EVAL@1: the one answer that is most likely token by token."""

SAMPLED = EvalProtocol(
    name="sampled", sampling=Sampling(n=16, temperature=0.8, top_p=0.95, max_tokens=2048)
)
"""EVAL@k: pass@1 to pass@16, unbiased; temperature and top-p as in Chen et al. 2021 for large k."""

BUDGET = EvalProtocol(
    name="budget", sampling=Sampling(n=32, temperature=0.8, top_p=0.95, max_tokens=2048)
)
"""EVAL@budget: samples drawn until one is accepted or the tokens, or judge-seconds, are spent."""

PROTOCOLS = {protocol.name: protocol for protocol in (GREEDY, SAMPLED, BUDGET)}


def protocol(
    name: str,
    *,
    prompt: PromptStyle,
    stop_early: bool,
    system_prompt: str | None = None,
    extra_body: Mapping[str, Any] | None = None,
    repair_rounds: int = 0,
    observation_bytes: int = 600,
    **changes: Any,
) -> EvalProtocol:
    """A named protocol, with other settings where they are given.

    Args:
        changes: fields of `Sampling`; None leaves the protocol's.

    Raises:
        ConfigError: no such protocol, or settings that make no sense.
    """
    if name not in PROTOCOLS:
        raise ConfigError(f"protocol={name}: choose one of {', '.join(PROTOCOLS)}")
    chosen = PROTOCOLS[name]
    sampling = replace(chosen.sampling, **{k: v for k, v in changes.items() if v is not None})
    return replace(
        chosen,
        sampling=sampling,
        prompt=prompt,
        stop_early=stop_early,
        system_prompt=system_prompt or None,
        extra_body=dict(extra_body or {}),
        repair_rounds=repair_rounds,
        observation_bytes=observation_bytes,
    )


def data_version(problems: Iterable[Problem]) -> str:
    """A hash of a data set's problems: their order, statements, tests and limits, no solutions."""
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(
            problem_line(replace(problem, gold=(), bad=(), tags=(), difficulty=None, date=None))
        )
    return digest.hexdigest()[:16]
