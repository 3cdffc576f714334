"""The `data rows` command: write verl's training files."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coding_model_project.cli.common import (
    AsJson,
    DataDir,
    MapColumns,
    Seed,
    Split,
    Tokenizer,
    Workers,
    embedded_sandbox,
    print_set_aside,
)
from coding_model_project.data.training.training_files import RowKind
from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.isolation.confine import Tier
from coding_model_project.progress import Advance, progress_bar
from coding_model_project.redaction import redacted

if TYPE_CHECKING:
    from coding_model_project.data.loaders import Trail
    from coding_model_project.data.quality.faults import Fault
    from coding_model_project.types import Problem

N_SHOWN = 20


class Use(StrEnum):
    """Purpose of the rows."""

    train = "train"
    validation = "validation"


def rows(
    problems: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME[=PATH]...",
            help="Data sets by name or file, files of problems, or folders of Harbor tasks.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Write the files to this folder.")],
    map_columns: MapColumns = None,
    split: Split = None,
    kind: Annotated[RowKind, typer.Option(help="Write rows for RL or for SFT.")] = RowKind.rl,
    prompt: Annotated[
        PromptStyle,
        typer.Option(help="Write fenced or bare prompts, like the run's coding.prompt."),
    ] = PromptStyle.fenced,
    use: Annotated[
        Use, typer.Option("--as", help="Write training rows, or only validation rows.")
    ] = Use.train,
    mixture: Annotated[
        str | None, typer.Option(help="Mix training rows by source: mbpp=2,tinycode=1.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="Write N training rows of the mixture.", min=1)
    ] = None,
    order: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Order training rows by this file or URL of ids; repeatable, one per source.",
        ),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Filter training rows by the pass rates in this file or URL, from `data rates`.",
        ),
    ] = None,
    min_rate: Annotated[
        float, typer.Option(help="Keep problems with at least this pass rate.", min=0.0, max=1.0)
    ] = 0.0,
    max_rate: Annotated[
        float, typer.Option(help="Keep problems with at most this pass rate.", min=0.0, max=1.0)
    ] = 1.0,
    max_prompt_tokens: Annotated[
        int | None, typer.Option(help="Drop prompts of more than N tokens.")
    ] = None,
    tokenizer: Tokenizer = None,
    tests: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Train with the tests in this file or URL only, from `data select-tests`.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            help="Leave out problems whose tests accept a program that does nothing, or reject the "
            "gold solution. Judges each problem once on a machine."
        ),
    ] = True,
    workers: Workers = None,
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write verl's training files: rows that refer to problems, and each problem with its tests once.

    Each split gets its own file. Test-only data is refused for training. Problems without hidden tests,
    or with tests that cannot be used or do not reach the program, are left out and named.
    A Harbor task's prompt is its instruction, and its verifier judges.
    """
    from coding_model_project.data.governance import Role
    from coding_model_project.data.loaders import Trail, given_set
    from coding_model_project.data.loaders.forms import parse_map
    from coding_model_project.data.quality.test_order import read_orders
    from coding_model_project.data.training import mixing
    from coding_model_project.data.training.rates import Rates, read_rates
    from coding_model_project.data.training.training_files import Plan, write_training_files

    if (max_prompt_tokens is None) != (tokenizer is None):
        raise ConfigError("--max-prompt-tokens and --tokenizer need each other; pass both")
    if rates is None and (min_rate > 0 or max_rate < 1):
        raise ConfigError("--min-rate, --max-rate: need measured rates; add --rates FILE")
    if tests is not None and use is not Use.train:
        raise ConfigError("--tests: only available with --as train; validation rows keep all tests")
    plan = Plan(
        kind=kind,
        style=prompt,
        use=Role(use),
        mixture=mixing.parse_mixture(mixture) if mixture else None,
        size=size,
        order=tuple(id for file in order for id in mixing.read_order(file)) if order else None,
        rates=Rates(read_rates(rates), min_rate, max_rate) if rates else None,
        max_prompt_tokens=max_prompt_tokens,
        tests=read_orders(tests) if tests else None,
        seed=seed,
    )
    count = mixing.token_counter(tokenizer, plan.style) if tokenizer else None
    columns = parse_map(map_columns)
    sets = [_Set(*given_set(word), Trail()) for word in problems]
    origins: dict[str, str] = {}
    n_checked = 0

    def read() -> Iterator[Problem]:
        for one in sets:
            mapped = columns if one.path is not None or len(sets) == 1 else {}
            yield from one.problems(data_dir, mapped, split)
            origins[one.name] = redacted(", ".join(one.trail.origins))
            if not as_json:
                print_set_aside(one.trail.notes, one.trail.set_aside, one.n_used)

    def judge(ids: Sequence[str], file: Mapping[str, Problem]) -> Mapping[str, Fault]:
        nonlocal n_checked
        n_checked = len(ids)
        return _unreached(ids, file, workers)

    written = write_training_files(
        read(),
        out,
        plan,
        count_tokens=count,
        settings={"from": origins, "tokenizer": tokenizer, "checked": check},
        check=judge if check else None,
    )
    if as_json:
        aside = sum(len(one.trail.set_aside) for one in sets)
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
    for line in written.ungradable[:N_SHOWN]:
        print(line, file=sys.stderr)
    if len(written.ungradable) > N_SHOWN:
        print(f"and {len(written.ungradable) - N_SHOWN} more", file=sys.stderr)
    for option, count_ignored in written.ignored.items():
        print(f"{option}: {count_ignored} entries ignored: given problems that do not train here")
    if order:
        print("train with data.shuffle=false to keep this order")


@dataclass(slots=True)
class _Set:
    """A data set of the command, and facts about what was read of it."""

    name: str
    path: str | None
    trail: Trail
    n_used: int = 0

    def problems(
        self, folder: Path | None, columns: Mapping[str, str], split: str | None
    ) -> Iterator[Problem]:
        """Yield the problems, and count them."""
        from coding_model_project.data.loaders import Place, data_dir, stream

        place = Place(path=self.path, data_dir=data_dir(folder), split=split, columns=columns)
        for problem in stream(self.name, place, self.trail):
            self.n_used += 1
            yield problem


def _unreached(
    ids: Sequence[str], problems: Mapping[str, Problem], workers: int | None
) -> Mapping[str, Fault]:
    from coding_model_project.data.quality.reach import unreached

    async def checked(advance: Advance) -> Mapping[str, Fault]:
        async with embedded_sandbox(workers, Tier.seccomp) as sandbox:
            return await unreached(ids, problems, sandbox, advance)

    try:
        with progress_bar("checking tests", len(ids)) as advance:
            return asyncio.run(checked(advance))
    except SandboxError as error:
        raise SandboxError(
            f"{error}; the same command resumes, and --no-check writes rows without judging"
        ) from error
