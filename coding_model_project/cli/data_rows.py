"""The `data` commands that make training files: `rows`, and `rates`, by which rows are filtered."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from statistics import fmean

from coding_model_project.cli import options
from coding_model_project.cli.options import print_first, print_set_aside
from coding_model_project.config_key import argument, option
from coding_model_project.data.governance import Role
from coding_model_project.data.quality.preflight import Fault
from coding_model_project.data.rates import Rate, Rates, read_rates, write_rates
from coding_model_project.data.training import mixing
from coding_model_project.data.training.training_files import Plan, write_training_files
from coding_model_project.errors import ConfigError, DataError, SandboxError
from coding_model_project.extras import extra
from coding_model_project.progress import Advance, progress_bar
from coding_model_project.redaction import redacted
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import Problem


class Use(StrEnum):
    """Purpose of the rows."""

    train = "train"
    validation = "validation"


def rows(
    problems: list[str] = argument(
        ...,
        "Data sets by name or file, files of problems, or folders of Harbor tasks.",
        metavar="NAME[=PATH]...",
    ),
    out: Path = option(..., "Write the files to this folder."),
    columns: dict[str, str] = option({}, options.COLUMNS),
    split: str | None = option(None, options.SPLIT),
    *,
    plan: Plan,
    use: Use = option(Use.train, "Write training rows, or only validation rows.", "--as"),
    mixture: str | None = option(None, "Mix training rows by source: mbpp=2,tinycode=1."),
    order: list[str] = option(
        [],
        "Order training rows by this file or URL of ids; repeatable, one per source.",
        metavar="FILE",
    ),
    rates: str | None = option(
        None,
        "Filter training rows by the pass rates in this file or URL, from `data rates`.",
        metavar="FILE",
    ),
    min_rate: float = option(0.0, "Keep problems with at least this pass rate.", min=0.0, max=1.0),
    max_rate: float = option(1.0, "Keep problems with at most this pass rate.", min=0.0, max=1.0),
    check: bool = option(
        True,
        "Leave out problems whose tests accept a program that does nothing, or reject the "
        "gold solution. Judges each problem once on a machine.",
    ),
    workers: int | None = option(None, options.WORKERS),
    seed: int = option(0, options.SEED),
    data_dir: Path | None = option(None, options.DATA_DIR),
    as_json: bool = option(False, options.AS_JSON),
) -> None:
    """Write verl's training files: rows that refer to problems, and each problem with its tests once.

    Each split gets its own file. Test-only data is refused for training. Problems without hidden tests,
    or with tests that cannot be used or do not reach the program, are left out and named.
    A Harbor task's prompt is its instruction, and its verifier judges.

    \b
    A training needs rows of both splits, and the problems with their tests:
        python -m coding_model_project data rows my_train.jsonl my_validation.jsonl --out my
        python -m recipes.grpo coding.dataset=null 'coding.problems=[my/problems.jsonl]' \\
            coding.prompt=fenced data.train_files=my/rl_train.parquet \\
            data.val_files=my/rl_validation.parquet
    """
    from coding_model_project.data.loaders import Place, Trail, given_set, stream
    from coding_model_project.data.loaders import data_dir as folder
    from coding_model_project.data.quality.reach import unreached

    with extra("rows"):
        import pyarrow  # noqa: F401 - a missing library is named before problems are judged for hours
    if rates is None and (min_rate > 0 or max_rate < 1):
        raise ConfigError("--min-rate, --max-rate: need measured rates; add --rates FILE")
    plan = replace(
        plan,
        use=Role(use),
        mixture=mixing.parse_mixture(mixture) if mixture else None,
        order=tuple(id for file in order for id in mixing.read_order(file)) if order else None,
        rates=Rates(read_rates(rates), min_rate, max_rate) if rates else None,
        seed=seed,
    )
    sets = [(*given_set(word), Trail()) for word in problems]
    origins: dict[str, str] = {}
    n_checked = 0

    def read() -> Iterator[Problem]:
        for name, path, trail in sets:
            mapped = columns if path is not None or len(sets) == 1 else {}
            place = Place(path=path, data_dir=folder(data_dir), split=split, columns=mapped)
            n_used = 0
            for problem in stream(name, place, trail):
                n_used += 1
                yield problem
            origins[name] = redacted(", ".join(trail.origins))
            if not as_json:
                print_set_aside(trail.notes, trail.set_aside, n_used)

    def judge(ids: Sequence[str], file: Mapping[str, Problem]) -> Mapping[str, Fault]:
        nonlocal n_checked
        n_checked = len(ids)

        async def checked(advance: Advance) -> Mapping[str, Fault]:
            async with options.embedded_sandbox(SandboxConfig(workers=workers)) as sandbox:
                return await unreached(ids, file, sandbox, advance)

        try:
            with progress_bar("checking tests", len(ids)) as advance:
                return asyncio.run(checked(advance))
        except SandboxError as error:
            raise SandboxError(
                f"{error}; the same command resumes, and --no-check writes rows without judging"
            ) from error

    written = write_training_files(
        read(),
        out,
        plan,
        settings={"from": origins, "checked": check},
        check=judge if check else None,
    )
    if as_json:
        aside = sum(len(trail.set_aside) for *_, trail in sets)
        line = {"rows": dict(written.rows), "left_out": dict(written.left_out), "set_aside": aside}
        line["checked"] = n_checked
        if written.ignored:
            line["ignored"] = dict(written.ignored)
        print(json.dumps(line))
        return
    if check:
        print(f"{n_checked} problems' tests checked (--no-check skips this)")
    else:
        print("tests not checked (--no-check): some may accept any program, or none")
    for name, n_rows in written.rows.items():
        print(f"{out / name}.parquet: {n_rows} rows")
    for reason, count_out in written.left_out.items():
        print(f"left out: {count_out} ({reason})")
    print_first(written.ungradable)
    print_first(written.notes)
    for word, count_ignored in written.ignored.items():
        print(f"{word}: {count_ignored} entries ignored: given problems that do not train here")
    if order:
        print("train with data.shuffle=false to keep this order")


def rates(
    evaluations: list[str] = argument(
        ..., "Evaluations of training problems.", metavar="EVAL_FOLDER..."
    ),
    out: Path = option(..., "Write one line per problem to this file."),
    as_json: bool = option(False, options.AS_JSON),
) -> None:
    """Measure each problem's pass rate from evaluations.

    Each line has a problem's id, pass rate and 95% interval, easiest problem first. `data rows` takes
    the file as --rates, to filter by --min-rate and --max-rate, and as --order.
    """
    from coding_model_project.evaluation.results import read_evaluation

    verdicts: dict[str, list[bool]] = defaultdict(list)
    models = set()
    for folder in evaluations:
        evaluation = read_evaluation(Path(folder))
        models.add(evaluation.model)
        for dataset in evaluation.datasets():
            for problem, results in evaluation.by_problem(dataset).items():
                verdicts[problem] += [result.by_this_judge.passed is True for result in results]
    if not verdicts:
        raise DataError(f"{evaluations[0]}: no judged samples")
    if len(models) > 1:
        raise DataError(
            f"evaluations of several models: {', '.join(sorted(models))}; pass those of one model"
        )
    measured = {name: Rate.of(passed) for name, passed in verdicts.items()}
    write_rates(out, measured)
    never = sum(rate.hits == 0 for rate in measured.values())
    always = sum(rate.hits == rate.total for rate in measured.values())
    if as_json:
        print(json.dumps({"problems": len(measured), "never": never, "always": always}))
        return
    mean = fmean(rate.hits / rate.total for rate in measured.values())
    judged = fmean(rate.total for rate in measured.values())
    print(
        f"{out}: {len(measured)} problems, {judged:.3g} samples each, mean rate {mean:.3f}; "
        f"{never} never passed, {always} always"
    )
