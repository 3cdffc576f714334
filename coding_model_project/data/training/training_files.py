"""A folder of training files.

<out>/problems.jsonl          the problems named by rows, with their tests, each once
      {rl,sft}_train.parquet  training rows
      {rl,sft}_validation.parquet, {rl,sft}_test.parquet
      manifest.json           settings, counts, numbers of problems left out, hashes
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coding_model_project.config_key import option
from coding_model_project.data.governance import Role, role, split_word
from coding_model_project.data.problems import ProblemFile, plain_statement, write_problems
from coding_model_project.data.quality.preflight import Fault
from coding_model_project.data.quality.preflight import ungradable as ungradable_of
from coding_model_project.data.rates import Rates
from coding_model_project.data.training import mixing
from coding_model_project.data.training.rows import (
    MANIFEST,
    PROBLEMS,
    refuse_training,
    rl_rows,
    sft_rows,
    source_of,
    write_manifest,
    write_rows,
)
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.types import Problem

Check = Callable[[Sequence[str], Mapping[str, Problem]], Mapping[str, Fault]]
"""A function of ids and of the problems by id, which returns the faults that judging showed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Settings for converting problems into rows."""

    sft: bool = option(False, "Also write SFT rows, of the problems with a gold solution.")
    style: PromptStyle = option(
        PromptStyle.fenced,
        "Write fenced or bare prompts, like the run's coding.prompt.",
        "--prompt",
    )
    use: Role = Role.train
    """Role.train writes each split into its own file; other roles write all as validation rows."""
    mixture: Mapping[str, float] | None = None
    size: int | None = option(None, "Write N training rows of the mixture.", min=1)
    order: tuple[str, ...] | None = None
    """Ids of the training rows in order; None shuffles them."""
    rates: Rates | None = None
    """A filter of training problems by pass rate; evaluation problems are not filtered."""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Numbers of written rows by file, and of problems left out by reason."""

    rows: Mapping[str, int]
    left_out: Mapping[str, int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    """Numbers of entries of an order or of rates, by option, for given problems that do not train."""
    ungradable: tuple[str, ...] = ()
    """A line for each problem left out because its tests cannot be used, with id and reason."""
    notes: tuple[str, ...] = ()
    """A line for each likely mistake in the choice of training problems."""


def write_training_files(
    problems: Iterable[Problem],
    out: Path,
    plan: Plan,
    *,
    settings: Mapping[str, Any] | None = None,
    check: Check | None = None,
) -> Written:
    """Write rows, problems and manifest.

    Problems are read once, and kept in a file meanwhile: memory holds a few facts of each.

    Args:
        settings: more settings for the manifest, such as the origin of the problems.
        check: a function that returns why problems must not train, by id.

    Raises:
        ConfigError: no problem may train, none is left to write, or the folder has other rows, whose
            problems would be lost.
    """
    parent = next(folder for folder in out.absolute().parents if folder.is_dir())
    with TemporaryDirectory(prefix=f".{out.name}-", dir=parent) as folder:
        left_out: dict[str, Fault] = {}
        statements: dict[str, int] = {}
        path = Path(folder) / PROBLEMS
        splits = _copied(problems, path, left_out, statements)
        file = ProblemFile(path)
        if check is not None and (usable := [name for name in splits if name not in left_out]):
            _by_file(usable, splits, plan)  # refuses what must not train before anything is judged
            left_out |= check(usable, file)
        lines = tuple(f"{name}: {kind}: {why}" for name, (kind, why) in left_out.items() if why)
        usable = [name for name in splits if name not in left_out]
        if not usable:
            why = "; ".join(f"{n} × {reason}" for reason, n in _counts(left_out).items())
            first = f"; the first: {lines[0]}" if lines else ""
            raise ConfigError(f"no problem is left to write{f': {why}' if why else ''}{first}")
        files = _by_file(usable, splits, plan)
        ignored: dict[str, int] = {}
        if "train" in files:
            others = {*splits, *left_out} - {*files["train"]}
            files["train"], ignored = _training(files["train"], others, plan, left_out)
        notes = tuple(_notes(files, splits, statements))
        counts = _write(files, file, out, plan, {**(settings or {}), "left_out": _counts(left_out)})
        return Written(
            rows=counts,
            left_out=_counts(left_out),
            ignored=ignored,
            ungradable=lines,
            notes=notes,
        )


def _notes(
    files: Mapping[str, Sequence[str]], splits: Mapping[str, str], statements: Mapping[str, int]
) -> Iterator[str]:
    """Yield likely mistakes: held-out statements in training, and splits that may be held out."""
    held_out = {statements[one]: one for word in files if word != "train" for one in files[word]}
    training = files.get("train", ())
    if copies := [one for one in training if statements[one] in held_out]:
        yield (
            f"{len(copies)} training problems have the statement of a held-out one, such as "
            f"{copies[0]} and {held_out[statements[copies[0]]]}: `data dedup` leaves them out"
        )
    words = Counter(splits[one] for one in training if split_word(splits[one]) != "train")
    for word, count in words.items():
        yield f"{count} problems of the split {word!r} train: held out are validation and test"


def _copied(
    problems: Iterable[Problem],
    path: Path,
    left_out: dict[str, Fault],
    statements: dict[str, int],
) -> dict[str, str]:
    """Copy the problems with usable tests into a file, and note the others.

    Args:
        statements: gets the hash of each problem's statement, by id.

    Returns:
        The split of each problem in the file, by id.
    """
    splits: dict[str, str] = {}

    def copied() -> Iterator[Problem]:
        for problem in problems:
            if (fault := next(ungradable_of(problem), None)) is not None:
                left_out[problem.id] = fault
                continue
            yield problem
            splits[problem.id] = problem.split
            statements[problem.id] = hash(plain_statement(problem))

    write_problems(path, copied())
    return splits


def _counts(left_out: Mapping[str, Fault]) -> dict[str, int]:
    """Return the number of problems by reason."""
    return dict(Counter(kind for kind, _ in left_out.values()))


def _by_file(ids: Sequence[str], splits: Mapping[str, str], plan: Plan) -> dict[str, list[str]]:
    if plan.use is not Role.train:
        return {"validation": list(ids)}
    files: dict[str, list[str]] = defaultdict(list)
    for name in ids:
        split = splits[name]
        if split == "train":  # such a row must not be silently moved to another file
            refuse_training(source_of(name), split, name)
        allowed = role(source_of(name), split)
        word = split_word(split)
        own_word = word if word in tuple(Role) else Role.train
        files[str(allowed if not allowed.may_train else own_word)].append(name)
    if "train" not in files:
        names = sorted({f"{source_of(name)} (split {splits[name]})" for name in ids})
        raise ConfigError(
            f"{', '.join(names)}: validation or test only, so nothing may train; pass training problems "
            "beside them, or write rows for validation (--as validation)"
        )
    return dict(files)


def _training(
    ids: list[str], others: Collection[str], plan: Plan, left_out: dict[str, Fault]
) -> tuple[list[str], dict[str, int]]:
    """Return the problems of training rows in order, and note those that the plan leaves out.

    A file of rates or an order also names problems of other splits, and problems that are left out.

    Args:
        others: ids of given problems that do not train.

    Returns:
        The ids, and the numbers of ignored entries by option (`Written.ignored`).

    Raises:
        ConfigError: the rates or the order do not fit the training problems.
    """
    left = {*others}
    ignored: Counter[str] = Counter()
    if (rates := plan.rates) is not None:
        ignored["--rates"] = len(left & rates.by_id.keys())
        out = rates.outside(ids, left)
        left_out |= {name: (reason, "") for name, reason in out.items()}
        left |= out.keys()
        ids = [name for name in ids if name not in out]
    order = None
    if plan.order is not None:
        order = [name for name in plan.order if name not in left]
        ignored["--order"] = len(plan.order) - len(order)
        if not order:
            raise ConfigError(
                f"--order: it names none of the {len(ids)} training problems; expected their ids, such "
                f"as {ids[0]}"
            )
    chosen = _arranged(ids, order, plan)
    reason = "beyond its share of the mixture" if plan.mixture else "not in the order"
    left_out |= dict.fromkeys({*ids} - {*chosen}, (reason, ""))
    return chosen, dict(+ignored)


def _arranged(ids: Sequence[str], order: Sequence[str] | None, plan: Plan) -> list[str]:
    if order is not None and plan.mixture is not None:
        return mixing.mixed_in_order(ids, plan.mixture, plan.size, plan.seed, order)
    if order is not None:
        return mixing.ordered(ids, order)
    if plan.mixture is not None:
        ids = mixing.mixed(ids, plan.mixture, plan.size, plan.seed)
    return mixing.shuffled(ids, plan.seed)


def _write(
    files: Mapping[str, Sequence[str]],
    file: Mapping[str, Problem],
    out: Path,
    plan: Plan,
    settings: Mapping[str, Any],
) -> dict[str, int]:
    """Write rows, problems and manifest; return the number of rows by file."""
    members = {f"rl_{word}": ids for word, ids in files.items()}
    if plan.sft:
        shown = {word: [one for one in ids if file[one].gold] for word, ids in files.items()}
        members |= {f"sft_{word}": ids for word, ids in shown.items() if ids}
        if not any(shown.values()):
            raise ConfigError("--sft: no problem has a gold solution")
    if others := sorted({path.stem for path in out.glob("rl_*.parquet")} - members.keys()):
        raise ConfigError(
            f"--out={out}: {others[0]}.parquet of another command names problems that would be lost; "
            "pass another --out, or delete it"
        )
    every = dict.fromkeys(chain(*files.values()))
    write_problems(out / PROBLEMS, map(file.__getitem__, every))
    counts = {}
    for name, ids in members.items():
        chosen, style = map(file.__getitem__, ids), plan.style
        is_sft = name.startswith("sft")
        rows = sft_rows(chosen, style) if is_sft else rl_rows(chosen, style, weights=plan.mixture)
        counts[name] = write_rows(out / f"{name}.parquet", rows, trains=name.endswith("_train"))
    own = {
        "style": str(plan.style),
        "use": str(plan.use),
        "mixture": dict(plan.mixture) if plan.mixture else None,
        "size": plan.size,
        "rates": [plan.rates.low, plan.rates.high] if plan.rates else None,
        "ordered": plan.order is not None,
        "seed": plan.seed,
    }
    write_manifest(out / MANIFEST, {**own, **settings}, counts)
    return counts
