"""The plan of an evaluation: its protocol, its data sets' problems in a window of days, and seeds.

A protocol has named, frozen settings, and a hash over everything a score depends on. Scores with equal
hashes are comparable: they have the same settings, prompt, extraction and judging rules, and problems.
The hash excludes the back end and the sandbox; run_info.json records them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date
from pathlib import Path
from typing import Any, Self

import orjson

from coding_model_project.data.governance import split_word
from coding_model_project.data.loaders import Loaded, given_set, load
from coding_model_project.data.problems import problem_line
from coding_model_project.errors import ConfigError
from coding_model_project.evaluation.backends.generation import OPTIONAL, Sampling
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from coding_model_project.evaluation.results import Key
from coding_model_project.grading.base import GRADER_VERSION
from coding_model_project.grading.observation import MIN_BYTES
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.grading.readings import CountedBy
from coding_model_project.types import UNJUDGED, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalProtocol:
    """Settings of sampling, prompting and judging.

    A program that uses up its time, memory or output on a test skips the remaining tests, which count as
    not passed. Otherwise an endless program would cost its time limit on each of hundreds of tests.
    """

    name: str
    sampling: Sampling
    """Sampling options; `sampling.n` samples per problem."""
    prompt: PromptStyle = PromptStyle.fenced
    system_prompt: str | None = None
    """System message at the start of the conversation, if any."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    """Extra fields in requests to a server."""
    stop_early: bool = False
    """Stop judging at the first failing test: faster, but gives no pass ratio."""
    repair_rounds: int = 0
    """Maximum repairs, within a sample, of an answer that fails a public test (`repair`)."""
    observation_bytes: int = 600
    """Maximum bytes of the test and outcome shown to the model for a repair."""
    rule: CountedBy = CountedBy.publisher
    """The rule that decides what counts as accepted where a data set's publisher has another."""
    grader_version: str = GRADER_VERSION
    """Version of the extraction and comparison rules."""

    def __post_init__(self) -> None:
        sampling = self.sampling
        if sampling.n < 1 or sampling.max_tokens < 1 or sampling.temperature < 0:
            raise ConfigError(
                f"protocol {self.name}: n={sampling.n}, max_tokens={sampling.max_tokens} and "
                f"temperature={sampling.temperature:g}: counts must be at least 1, temperature at least 0"
            )
        if self.repair_rounds < 0 or self.observation_bytes < MIN_BYTES:
            raise ConfigError(
                f"protocol {self.name}: repair_rounds={self.repair_rounds} must be at least 0, and "
                f"observation_bytes={self.observation_bytes} at least {MIN_BYTES}"
            )
        if sampling.temperature == 0 and sampling.n > 1:
            raise ConfigError(
                f"protocol={self.name}: n={sampling.n} samples at temperature 0 would be identical; "
                "use protocol=sampled (--protocol sampled), or n=1"
            )

    @property
    def ks(self) -> tuple[int, ...]:
        """The reported k of pass@k: powers of two, and the number of samples."""
        n = self.sampling.n
        return tuple(sorted({1 << i for i in range(n.bit_length())} | {n}))

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> EvalProtocol:
        """Read a protocol from a run_info.json; the inverse of `described`.

        Raises:
            TypeError, ValueError, KeyError: a setting is missing or unknown.
        """
        settings = {name: value for name, value in record.items() if name != "hash"}
        sampling = dict(settings["sampling"])
        sampling["stop"] = tuple(sampling.get("stop", ()))
        settings |= {
            "sampling": Sampling(**sampling),
            "prompt": PromptStyle(settings["prompt"]),
            "rule": CountedBy(settings.get("rule", CountedBy.ours)),
            "grader_version": str(settings["grader_version"]),
        }
        return cls(**settings)

    def judged_today(self) -> EvalProtocol:
        """Return the same protocol with the current grader version."""
        return replace(self, grader_version=GRADER_VERSION)

    def described(self, versions: Mapping[str, str]) -> dict[str, Any]:
        """Return the settings and hash for run_info.json.

        Args:
            versions: versions of the data sets by name (`data_version`).
        """
        settings = asdict(self) | {"sampling": self.sampling.described()}
        if not self.repair_rounds:  # observation_bytes has no effect then
            del settings["repair_rounds"], settings["observation_bytes"]
        for name in ("system_prompt", "extra_body"):
            if not settings[name]:
                del settings[name]
        digest = protocol_hash(settings, versions)
        return {"name": settings.pop("name"), "hash": digest, **settings}


def protocol_hash(settings: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Hash a protocol's settings, including its name, with the versions of its data sets."""
    content = orjson.dumps([dict(settings), dict(versions)], option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(content).hexdigest()[:16]


GREEDY = EvalProtocol(name="greedy", sampling=Sampling(max_tokens=2048))
"""EVAL@1: one greedily decoded answer."""

SAMPLED = EvalProtocol(
    name="sampled", sampling=Sampling(n=16, temperature=0.8, top_p=0.95, max_tokens=2048)
)
"""EVAL@k: unbiased pass@1 to pass@16; temperature and top-p follow Chen et al. 2021 for large k."""

BUDGET = EvalProtocol(
    name="budget", sampling=Sampling(n=32, temperature=0.8, top_p=0.95, max_tokens=2048)
)
"""EVAL@budget: samples drawn until one is accepted, or the tokens or judge-seconds are spent."""

PROTOCOLS = {protocol.name: protocol for protocol in (GREEDY, SAMPLED, BUDGET)}


_DRAWN = ("n", "temperature", "top_p", "max_tokens", *OPTIONAL)
"""Keys of `coding.evaluation` that are fields of `Sampling`; null keeps the protocol's."""


def protocol_of(
    config: EvaluationConfig, *, prompt: PromptStyle, observation_bytes: int = 600
) -> EvalProtocol:
    """Return the protocol that a configuration names, with the settings that it changes.

    Raises:
        ConfigError: the protocol is unknown, or a setting is out of range.
    """
    if config.protocol not in PROTOCOLS:
        raise ConfigError(f"protocol={config.protocol}: expected one of {', '.join(PROTOCOLS)}")
    chosen = PROTOCOLS[config.protocol]
    given = {name: value for name in _DRAWN if (value := getattr(config, name)) is not None}
    given |= {"stop": tuple(config.stop), "chat_template_kwargs": dict(config.chat_template_kwargs)}
    return replace(
        chosen,
        sampling=replace(chosen.sampling, **given),
        prompt=prompt,
        stop_early=config.stop_early,
        rule=config.rule,
        system_prompt=config.system_prompt or None,
        extra_body=dict(config.extra_body),
        repair_rounds=config.repair_rounds,
        observation_bytes=observation_bytes,
    )


_DROPPED: dict[str, Any] = {
    one.name: one.default for one in fields(Problem) if one.name in (*UNJUDGED, "publisher")
}


def data_version(problems: Iterable[Problem]) -> str:
    """Return a hash of problems: their order, statements, tests and limits.

    Solutions are not in it, nor is the publisher whose rule gives a second reading: the first is judged
    by the same tests.
    """
    digest = hashlib.sha256()
    for problem in problems:
        digest.update(problem_line(replace(problem, **_DROPPED)))
    return digest.hexdigest()[:16]


# ── data sets and samples ─────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A data set and the problems of it that are evaluated."""

    name: str
    problems: tuple[Problem, ...]
    version: str
    """`data_version` of the problems."""
    origin: str
    n_set_aside: int
    """Number of unusable rows."""
    notes: tuple[str, ...]

    def splits(self) -> str:
        """Return the problems' splits, with the number of each if there are several."""
        counts = Counter(split_word(problem.split) for problem in self.problems)
        if len(counts) == 1:
            return f"split {next(iter(counts))}"
        return f"splits {', '.join(f'{split} {n}' for split, n in counts.items())}"


@dataclass(frozen=True, slots=True)
class Sample:
    """One completion to generate and judge."""

    dataset: str
    problem: Problem
    number: int
    seed: int

    @property
    def key(self) -> Key:
        return self.dataset, self.problem.id, self.number


@dataclass(frozen=True, slots=True)
class Shard:
    """Every `of`-th problem, starting at the `number`-th."""

    number: int = 0
    of: int = 1

    @classmethod
    def parse(cls, text: str | None) -> Shard:
        """Parse a shard such as "0/4"; None is the whole.

        Raises:
            ConfigError: the text is not a shard.
        """
        if text is None:
            return cls()
        number, _, of = text.partition("/")
        if not (number.isdigit() and of.isdigit() and int(number) < int(of)):
            raise ConfigError(
                f"shard={text}: expected NUMBER/OF, from 0/4 (the first of four) to 3/4"
            )
        return cls(int(number), int(of))


def load_datasets(config: EvaluationConfig) -> tuple[DataSet, ...]:
    """Read the data sets of an evaluation, as its keys select their problems.

    Raises:
        ConfigError: no data set is named, or one is missing, named twice or empty in the window
            or the split.
        DataError: a file is damaged.
    """
    if not config.datasets:
        raise ConfigError("no data sets; pass some, such as humaneval or mbpp_reg")
    window = Window.parse(config.from_date, config.to_date)
    found: dict[str, DataSet] = {}
    for word in config.datasets:
        name, path = given_set(word)
        if name in found:
            raise ConfigError(f"{name}: named twice; give one another name (NAME=PATH)")
        loaded = load(
            name,
            path=path,
            split=config.split,
            data_dir=Path(config.data_dir) if config.data_dir else None,
            columns=config.columns if path is not None or len(config.datasets) == 1 else None,
            max_tests=config.max_tests,
        )
        found[name] = _chosen(loaded, window, config.limit)
    return tuple(found.values())


def _chosen(loaded: Loaded, window: Window, limit: int | None) -> DataSet:
    name = loaded.name
    problems = window.cut(loaded.problems, name)[:limit]
    if not problems:
        reason = f": {loaded.set_aside[0].reason}" if loaded.set_aside else ""
        raise ConfigError(f"{name}: no usable problems ({loaded.origin}){reason}")
    ids: set[str] = set()
    for problem in problems:
        if problem.id in ids:
            raise ConfigError(f"{name}: duplicate problem {problem.id} ({loaded.origin})")
        ids.add(problem.id)
    return DataSet(
        name=name,
        problems=problems,
        version=data_version(problems),
        origin=loaded.origin,
        n_set_aside=len(loaded.set_aside),
        notes=(*filter(None, [loaded.aside()]), *loaded.notes),
    )


def samples(datasets: Sequence[DataSet], *, n: int, seed: int, shard: Shard) -> Iterator[Sample]:
    """Yield the samples of a shard, ordered by data set, problem and sample number."""
    problems = ((data, problem) for data in datasets for problem in data.problems)
    for place, (data, problem) in enumerate(problems):
        if place % shard.of == shard.number:
            for number in range(n):
                key = data.name, problem.id, number
                yield Sample(data.name, problem, number, sample_seed(seed, key))


def sample_seed(seed: int, key: Key) -> int:
    """Return a sample's seed in [0, 2³¹), which depends only on the evaluation's seed and the key."""
    text = "\0".join(map(str, (seed, *key)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


# ── days of publication ───────────────────────────────────────────────────────────────────────────


def day(text: str | None, key: str) -> str | None:
    """Check a day such as "2024-08-01".

    Raises:
        ConfigError: the text is not a day; names the key.
    """
    if text is None:
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise ConfigError(
            f"coding.evaluation.{key}={text}: expected a day such as 2024-08-01"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The days from `first` to `last`, both inclusive; None is unbounded."""

    first: str | None = None
    last: str | None = None

    @classmethod
    def parse(cls, first: str | None, last: str | None) -> Self:
        """Create a window from two days.

        Raises:
            ConfigError: a text is not a day, or the last day is before the first.
        """
        window = cls(first=day(first, "from_date"), last=day(last, "to_date"))
        if window.first and window.last and window.last < window.first:
            raise ConfigError(
                f"coding.evaluation.to_date={last}: must not be before from_date={first} (--from, --to)"
            )
        return window

    def cut(self, problems: Sequence[Problem], name: str) -> tuple[Problem, ...]:
        """Return the problems published in the window.

        Raises:
            ConfigError: a problem has no date, or no problem is left; names the data set.
        """
        if self.first is None and self.last is None:
            return tuple(problems)
        days = sorted(problem.date for problem in problems if problem.date is not None)
        if len(days) < len(problems):
            raise ConfigError(
                f"{name}: {len(problems) - len(days)} of {len(problems)} problems have no date, so "
                "--from and --to cannot be used; livecodebench has dates"
            )
        low, high = self.first or days[0], self.last or days[-1]
        kept = tuple(one for one in problems if one.date is not None and low <= one.date <= high)
        if not kept:
            ends = (("--from", self.first), ("--to", self.last))
            given = " ".join(f"{option} {end}" for option, end in ends if end)
            raise ConfigError(
                f"{name}: no problems within {given}; its problems are from {days[0]} to {days[-1]}"
            )
        return kept
