"""A folder of training files.

<out>/problems.jsonl          the problems named by rows, with their tests, each once
      {rl,sft}_train.parquet  training rows
      {rl,sft}_validation.parquet, {rl,sft}_test.parquet
      manifest.json           settings, counts, numbers of problems left out, hashes

A later command into the same folder keeps the files that it does not replace: with their problems, and
with the settings of their command under "earlier" in the manifest (`earlier_files`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coding_model_project.data.governance import Role, role, split_word
from coding_model_project.data.problems import ProblemFile, write_problems
from coding_model_project.data.quality.faults import Fault
from coding_model_project.data.quality.faults import ungradable as ungradable_of
from coding_model_project.data.quality.test_order import TestOrder, ordered
from coding_model_project.data.training import mixing
from coding_model_project.data.training.earlier_files import MANIFEST, PROBLEMS, earlier_files
from coding_model_project.data.training.mixing import CountTokens
from coding_model_project.data.training.rates import within
from coding_model_project.data.training.rows import (
    VerlRow,
    refuse_training,
    rl_rows,
    sft_rows,
    source_of,
    write_rows,
)
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.types import Problem

Check = Callable[[Sequence[str], Mapping[str, Problem]], Mapping[str, Fault]]
"""A function of ids and of the problems by id, which returns the faults that judging showed."""


class RowKind(StrEnum):
    """The use of the rows."""

    rl = "rl"
    sft = "sft"


@dataclass(frozen=True, slots=True)
class Rates:
    """Measured pass rates by problem id, and the bounds of those to train on."""

    by_id: Mapping[str, float]
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Settings for converting problems into rows."""

    kind: RowKind = RowKind.rl
    style: PromptStyle = PromptStyle.fenced
    use: Role = Role.train
    """Role.train writes each split into its own file; other roles write all as validation rows."""
    mixture: Mapping[str, float] | None = None
    size: int | None = None
    order: tuple[str, ...] | None = None
    """Ids of the training rows in order; None shuffles them."""
    rates: Rates | None = None
    """A filter of training problems by pass rate; evaluation problems are not filtered."""
    max_prompt_tokens: int | None = None
    tests: Mapping[str, TestOrder] | None = None
    """The tests to keep of training problems; evaluation problems keep all."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class _Entry:
    """The part of a problem that the choice of rows needs."""

    id: str
    split: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Numbers of written rows by file, and of problems left out by reason."""

    rows: Mapping[str, int]
    left_out: Mapping[str, int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    """Numbers of entries of an order or of rates, by option, for given problems that do not train."""
    ungradable: tuple[str, ...] = ()
    """A line for each problem left out because its tests cannot be used, with id and reason."""


def write_training_files(
    problems: Iterable[Problem],
    out: Path,
    plan: Plan,
    *,
    count_tokens: CountTokens | None = None,
    settings: Mapping[str, Any] | None = None,
    check: Check | None = None,
) -> Written:
    """Write rows, problems and manifest, beside the files of earlier commands.

    Problems are read once, and kept in a file meanwhile: memory holds a few facts of each.

    Args:
        count_tokens: a function that counts tokens; required if the plan has `max_prompt_tokens`.
        settings: more settings for the manifest, such as the origin of the problems.
        check: a function that returns why problems must not train, by id.

    Raises:
        ConfigError: no problem may train, none is left to write, or the folder has another version of
            a problem.
    """
    parent = next(folder for folder in out.absolute().parents if folder.is_dir())
    with TemporaryDirectory(prefix=f".{out.name}-", dir=parent) as folder:
        usable, left_out, unfit = _usable(problems, Path(folder) / PROBLEMS, plan, count_tokens)
        file = ProblemFile(Path(folder) / PROBLEMS)
        known = {*file, *unfit}
        if usable and check is not None:
            _by_file(usable, plan)  # refuses what must not train before anything is judged
            unfit |= check([one.id for one in usable], file)
            usable = [one for one in usable if one.id not in unfit]
        left_out = {**Counter(kind for kind, _ in unfit.values()), **left_out}
        lines = tuple(f"{name}: {kind}: {detail}" for name, (kind, detail) in unfit.items())
        if not usable:
            why = "; ".join(f"{n} × {reason}" for reason, n in left_out.items() if n)
            first = f"; the first: {lines[0]}" if lines else ""
            raise ConfigError(f"no problem is left to write{f': {why}' if why else ''}{first}")
        return _written(usable, file, known, out, plan, left_out, settings, lines)


def _written(
    usable: list[_Entry],
    file: ProblemFile,
    known: set[str],
    out: Path,
    plan: Plan,
    left_out: dict[str, int],
    settings: Mapping[str, Any] | None,
    lines: tuple[str, ...],
) -> Written:
    files = _by_file(usable, plan)
    ignored: dict[str, int] = {}
    if "train" in files:
        if (rates := plan.rates) is not None:
            others = known - {one.id for one in files["train"]}
            ignored["--rates"] = len(others & rates.by_id.keys())
            files["train"], out_of = within(
                files["train"], rates.by_id, rates.low, rates.high, others
            )
            left_out |= out_of
        n_before = len(files["train"])
        order = _order(files["train"], known, plan)
        ignored["--order"] = len(plan.order or ()) - len(order or ())
        files["train"] = _arranged(files["train"], replace(plan, order=order))
        what = "beyond its share of the mixture" if plan.mixture else "not in the order"
        left_out[what] = n_before - len({one.id for one in files["train"]})
    orders = dict.fromkeys((one.id for members in files.values() for one in members), None)
    if plan.tests:
        orders |= {one.id: plan.tests.get(one.id) for one in files.get("train", ())}

    def final(problem_id: str) -> Problem | None:
        return ordered(file[problem_id], orders[problem_id]) if problem_id in orders else None

    earlier = earlier_files(out, [f"{plan.kind}_{name}" for name in files], final)
    write_problems(
        out / PROBLEMS,
        chain((ordered(file[name], order) for name, order in orders.items()), earlier.problems()),
    )
    counts = {}
    for name, members in files.items():
        rows = _rows((file[one.id] for one in members), plan)
        write_rows(out / f"{plan.kind}_{name}.parquet", rows, trains=name == "train")
        counts[f"{plan.kind}_{name}"] = len(members)
    left_out = {reason: n for reason, n in left_out.items() if n}
    write_manifest(
        out / MANIFEST,
        {**_settings(plan), **(settings or {}), "left_out": left_out},
        {**earlier.counts, **counts},
        earlier.commands,
    )
    ignored = {option: n for option, n in ignored.items() if n}
    return Written(rows=counts, left_out=left_out, ignored=ignored, ungradable=lines)


def _usable(
    problems: Iterable[Problem], path: Path, plan: Plan, count_tokens: CountTokens | None
) -> tuple[list[_Entry], dict[str, int], dict[str, Fault]]:
    """Copy the problems with usable tests into a file.

    Returns:
        Those that the plan can use, the numbers of the others by reason, and the faults of problems
        without usable tests.
    """
    entries: dict[str, _Entry] = {}
    unfit: dict[str, Fault] = {}
    too_long = f"prompt over {plan.max_prompt_tokens} tokens"
    left_out: dict[str, set[str]] = {"no gold solution": set(), too_long: set()}

    def copied() -> Iterator[Problem]:
        for problem in problems:
            if (fault := next(ungradable_of(problem), None)) is not None:
                unfit[problem.id] = fault
                continue
            yield problem
            if plan.kind is RowKind.sft and not problem.gold:
                left_out["no gold solution"].add(problem.id)
            elif plan.max_prompt_tokens is not None and problem.id not in entries:
                assert count_tokens is not None
                if count_tokens(problem) > plan.max_prompt_tokens:
                    left_out[too_long].add(problem.id)
            entries[problem.id] = _Entry(problem.id, problem.split)

    write_problems(path, copied())
    gone = set().union(*left_out.values())
    numbers = {reason: len(ids) for reason, ids in left_out.items()}
    return [one for one in entries.values() if one.id not in gone], numbers, unfit


def _by_file(problems: Sequence[_Entry], plan: Plan) -> dict[str, list[_Entry]]:
    if plan.use is not Role.train:
        return {"validation": list(problems)}
    files: dict[str, list[_Entry]] = defaultdict(list)
    for problem in problems:
        if problem.split == "train":  # such a row must not be silently moved to another file
            refuse_training(source_of(problem.id), problem.split, problem.id)
        allowed = role(source_of(problem.id), problem.split)
        word = split_word(problem.split)
        own_word = word if word in tuple(Role) else Role.train
        files[str(allowed if not allowed.may_train else own_word)].append(problem)
    if "train" not in files:
        names = sorted({f"{source_of(problem.id)}_{problem.split}" for problem in problems})
        raise ConfigError(
            f"{', '.join(names)}: test only, so nothing may train; to write rows for evaluation, use "
            "--as validation"
        )
    return dict(files)


def _order(
    training: Sequence[_Entry], known: Collection[str], plan: Plan
) -> tuple[str, ...] | None:
    """Return the plan's order without the known problems that do not train.

    A file of rates also names problems of other splits, and problems that the plan leaves out.

    Raises:
        ConfigError: the order names no training problem.
    """
    if plan.order is None:
        return None
    trained = {problem.id for problem in training}
    order = tuple(name for name in plan.order if name in trained or name not in known)
    if not order:
        raise ConfigError(
            f"--order: it names none of the {len(trained)} training problems; expected their ids, such "
            f"as {training[0].id}"
        )
    return order


def _arranged(problems: Sequence[_Entry], plan: Plan) -> list[_Entry]:
    if plan.order is not None and plan.mixture is not None:
        return mixing.mixed_in_order(problems, plan.mixture, plan.size, plan.seed, plan.order)
    if plan.order is not None:
        return mixing.ordered(problems, plan.order, "the order file")
    if plan.mixture is not None:
        problems = mixing.mixed(problems, plan.mixture, plan.size, plan.seed)
    return mixing.shuffled(problems, plan.seed)


def _rows(problems: Iterable[Problem], plan: Plan) -> Iterator[VerlRow]:
    if plan.kind is RowKind.sft:
        return sft_rows(problems, plan.style)
    return rl_rows(problems, plan.style, weights=plan.mixture)


def _settings(plan: Plan) -> dict[str, Any]:
    return {
        "kind": str(plan.kind),
        "style": str(plan.style),
        "use": str(plan.use),
        "mixture": dict(plan.mixture) if plan.mixture else None,
        "size": plan.size,
        "rates": [plan.rates.low, plan.rates.high] if plan.rates else None,
        "ordered": plan.order is not None,
        "max_prompt_tokens": plan.max_prompt_tokens,
        "tests_chosen_of": None if plan.tests is None else len(plan.tests),
        "seed": plan.seed,
    }


def is_made(path: Path, settings: Mapping[str, Any]) -> bool:
    """Return whether `write_manifest` wrote this manifest for the same settings of a generator.

    Raises:
        ConfigError: the folder holds files that no generator made, which making would overwrite.
    """
    if not path.exists():
        return False
    made = json.loads(path.read_text())["settings"]
    if "generator" not in made:
        raise ConfigError(
            f"coding.data_dir={path.parent} holds your own files, which the embedded tasks would "
            "overwrite; set coding.dataset=null to train on them (docs/my-data.md), or another "
            "coding.data_dir"
        )
    return made == settings


def style_of_rows(path: Path) -> PromptStyle | None:
    """Return the prompt style of a file of rows by the manifest beside it.

    None if there is no manifest, or if the file has changed since.
    """
    try:
        manifest = json.loads(path.with_name("manifest.json").read_text())
        recorded = manifest["sha256"][path.name]
        parts = [part for part in manifest.get("earlier", ()) if path.stem in part["counts"]]
        style = PromptStyle((parts or [manifest])[-1]["settings"]["style"])
        content = _sha256(path)
    except (OSError, ValueError, KeyError, TypeError):  # none, or another program's
        return None
    return style if content == recorded else None


def write_manifest(
    path: Path,
    settings: Mapping[str, Any],
    counts: Mapping[str, int],
    earlier: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Write a manifest. Call it last, since a manifest marks the files as complete.

    Args:
        counts: the number of rows of every file.
        earlier: the settings and counts of each earlier command whose files are still in the folder.
    """
    hashes = {
        file.name: _sha256(file)
        for file in sorted(path.parent.iterdir())
        if file.suffix in (".parquet", ".jsonl")
    }
    content = {"settings": settings, "counts": counts, "sha256": hashes}
    if earlier:
        content["earlier"] = earlier
    text = json.dumps(content, indent=2)
    partial = path.with_suffix(".partial")
    partial.write_text(text + "\n")
    partial.replace(path)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
