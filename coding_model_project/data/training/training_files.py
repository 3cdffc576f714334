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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from coding_model_project.data.governance import Role, role, split_word
from coding_model_project.data.problems import write_problems
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
    source,
    write_rows,
)
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.types import Problem


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Numbers of written rows by file, and of problems left out by reason."""

    rows: Mapping[str, int]
    left_out: Mapping[str, int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    """Numbers of entries of an order or of rates, by option, for given problems that do not train."""
    ungradable: tuple[str, ...] = ()
    """A line for each problem left out because no program could get a verdict, with id and reason."""


def write_training_files(
    problems: Sequence[Problem],
    out: Path,
    plan: Plan,
    *,
    count_tokens: CountTokens | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Written:
    """Write rows, problems and manifest, beside the files of earlier commands.

    Args:
        count_tokens: a function that counts tokens; required if the plan has `max_prompt_tokens`.
        settings: more settings for the manifest, such as the origin of the problems.

    Raises:
        ConfigError: no problem may train, none is left to write, or the folder has another version of
            a problem.
    """
    left_out: dict[str, int] = {}
    usable = list(_deduplicated(problems))
    known = {problem.id for problem in usable}
    usable, ungradable, counts_of = _gradable(usable)
    left_out |= counts_of
    if plan.kind is RowKind.sft:
        n_before = len(usable)
        usable = [problem for problem in usable if problem.gold]
        left_out["no gold solution"] = n_before - len(usable)
    if plan.max_prompt_tokens is not None:
        assert count_tokens is not None
        usable, n_long = mixing.short_enough(usable, plan.max_prompt_tokens, count_tokens)
        left_out[f"prompt over {plan.max_prompt_tokens} tokens"] = n_long
    if not usable:
        why = "; ".join(f"{n} × {reason}" for reason, n in left_out.items() if n)
        first = f"; the first: {ungradable[0]}" if ungradable else ""
        raise ConfigError(f"no problem is left to write{f': {why}' if why else ''}{first}")
    files = _by_file(usable, plan)
    ignored: dict[str, int] = {}
    if "train" in files:
        if (rates := plan.rates) is not None:
            others = known - {problem.id for problem in files["train"]}
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
        left_out[what] = n_before - len({problem.id for problem in files["train"]})
        files["train"] = ordered(files["train"], plan.tests or {})
    named = {problem.id: problem for members in files.values() for problem in members}
    earlier = earlier_files(out, [f"{plan.kind}_{name}" for name in files], named)
    counts = {}
    for name, members in files.items():
        file = f"{plan.kind}_{name}"
        write_rows(out / f"{file}.parquet", _rows(members, plan), trains=name == "train")
        counts[file] = len(members)
    write_problems(out / PROBLEMS, [*named.values(), *earlier.problems])
    left_out = {reason: n for reason, n in left_out.items() if n}
    write_manifest(
        out / MANIFEST,
        {**_settings(plan), **(settings or {}), "left_out": left_out},
        {**earlier.counts, **counts},
        earlier.commands,
    )
    ignored = {option: n for option, n in ignored.items() if n}
    return Written(rows=counts, left_out=left_out, ignored=ignored, ungradable=ungradable)


def _deduplicated(problems: Iterable[Problem]) -> Iterable[Problem]:
    """Deduplicate the problems of overlapping sets by id, which alone identifies a problem for rewards.

    Raises:
        ConfigError: two different problems have the same id.
    """
    known: dict[str, Problem] = {}
    for problem in problems:
        if known.setdefault(problem.id, problem) != problem:
            raise ConfigError(f"two different problems have the id {problem.id}")
    return known.values()


def _gradable(
    problems: Sequence[Problem],
) -> tuple[list[Problem], tuple[str, ...], Counter[str]]:
    """Return the problems with usable tests, a line for each other one, and their numbers by fault."""
    found = [(problem, next(ungradable_of(problem), None)) for problem in problems]
    lines = tuple(f"{one.id}: {fault[0]}: {fault[1]}" for one, fault in found if fault)
    counts = Counter(fault[0] for _, fault in found if fault)
    return [problem for problem, fault in found if fault is None], lines, counts


def _by_file(problems: Sequence[Problem], plan: Plan) -> dict[str, list[Problem]]:
    if plan.use is not Role.train:
        return {"validation": list(problems)}
    files: dict[str, list[Problem]] = defaultdict(list)
    for problem in problems:
        if problem.split == "train":  # such a row must not be silently moved to another file
            refuse_training(source(problem), problem.split, problem.id)
        allowed = role(source(problem), problem.split)
        word = split_word(problem.split)
        own_word = word if word in tuple(Role) else Role.train
        files[str(allowed if not allowed.may_train else own_word)].append(problem)
    if "train" not in files:
        names = sorted({f"{source(problem)}_{problem.split}" for problem in problems})
        raise ConfigError(
            f"{', '.join(names)}: test only, so nothing may train; to write rows for evaluation, use "
            "--as validation"
        )
    return dict(files)


def _order(
    training: Sequence[Problem], known: Collection[str], plan: Plan
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


def _arranged(problems: Sequence[Problem], plan: Plan) -> list[Problem]:
    if plan.order is not None and plan.mixture is not None:
        return mixing.mixed_in_order(problems, plan.mixture, plan.size, plan.seed, plan.order)
    if plan.order is not None:
        return mixing.ordered(problems, plan.order, "the order file")
    if plan.mixture is not None:
        problems = mixing.mixed(problems, plan.mixture, plan.size, plan.seed)
    return mixing.shuffled(problems, plan.seed)


def _rows(problems: Sequence[Problem], plan: Plan) -> list[VerlRow]:
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
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
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
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
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
