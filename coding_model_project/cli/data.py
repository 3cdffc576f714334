"""`data`: making data sets, and checking that they are fit to grade by and to train on."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coding_model_project.cli.common import (
    AsJson,
    DataDir,
    DatasetName,
    DatasetPath,
    Limit,
    MapColumns,
    MaxTests,
    MinTier,
    Mutants,
    Seed,
    Tokenizer,
    Workers,
    embedded_sandbox,
    given_dataset,
)
from coding_model_project.cli.data_export_harbor import export_harbor
from coding_model_project.cli.data_list import list_sets
from coding_model_project.cli.data_pairs import pairs
from coding_model_project.cli.data_repair_traces import repair_traces
from coding_model_project.cli.data_select_tests import select_tests
from coding_model_project.cli.data_sft_rows import sft_rows
from coding_model_project.errors import ConfigError
from coding_model_project.progress import progress_bar

if TYPE_CHECKING:
    from coding_model_project.data.loaders import Loaded
    from coding_model_project.data.quality.preflight import Preflight

EMBEDDED = ("tinycode", "tinyshell")
N_SHOWN = 20

app = typer.Typer(no_args_is_help=True, help="Prepare and check data sets.")
app.command("list")(list_sets)
app.command("select-tests")(select_tests)
app.command("sft-rows")(sft_rows)
app.command("pairs")(pairs)
app.command("repair-traces")(repair_traces)
app.command("export-harbor")(export_harbor)


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="The data set: tinycode or tinyshell.")],
    out: Annotated[
        Path | None, typer.Option(help="Write the files to this folder; data/NAME by default.")
    ] = None,
    seed: Seed = 0,
    sft_demonstrations: Annotated[
        int, typer.Option(help="Show N solutions of tinycode in SFT.")
    ] = 200,
    base_model: Annotated[
        bool, typer.Option(help="Also pre-train the tiny starting model from scratch.")
    ] = False,
) -> None:
    """Write a data set's problems and training files; does nothing if they are there.

    tinycode: Python functions with tests. tinyshell: Harbor tasks of one or two shell commands.
    """
    from coding_model_project.grading.prompts import PromptStyle
    from coding_model_project.synthetic.prepare import prepare_base_model, prepare_tinycode
    from coding_model_project.synthetic.tinyshell.shell_files import (
        prepare_shell_model,
        prepare_tinyshell,
    )

    if name not in EMBEDDED:
        raise ConfigError(f"data prepare {name}: the embedded data sets are {', '.join(EMBEDDED)}")
    folder = out or Path("data") / name
    if name == "tinyshell":
        prepare_tinyshell(folder, seed=seed, say=print)
        make_model = prepare_shell_model
    else:
        style = PromptStyle.bare
        prepare_tinycode(
            folder, style=style, seed=seed, sft_demonstrations=sft_demonstrations, say=print
        )
        make_model = prepare_base_model
    if base_model:
        make_model(folder, seed=seed, say=print)
    print(f"{name} is in {folder}")


@app.command()
def preflight(
    name: DatasetName,
    path: DatasetPath = None,
    map_columns: MapColumns = None,
    data_dir: DataDir = None,
    mutants: Mutants = 0,
    repeats: Annotated[
        int, typer.Option(help="Judge all this often, to find verdicts that change.", min=1)
    ] = 1,
    quarantine: Annotated[
        Path | None, typer.Option(help="Write what must not train, with reasons (JSON lines).")
    ] = None,
    passed: Annotated[
        Path | None, typer.Option(help="Write the problems that may train, in our own schema.")
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Load this revision from the hub, not the pinned one.")
    ] = None,
    max_tests: MaxTests = None,
    limit: Limit = None,
    as_json: AsJson = False,
    workers: Workers = None,
    min_tier: MinTier = "seccomp",
) -> int:
    """Check that gold solutions are accepted and known-bad ones rejected.

    Also reports duplicate ids, empty statements, absurd limits and answers that were compared with
    themselves. The last line is JSON. Exit code 1 if a problem has a fault, a gold solution is rejected,
    a known-bad one accepted, a verdict changes, or nothing could be shown for want of solutions.
    """
    from coding_model_project.data.loaders import load
    from coding_model_project.data.loaders.mapped import parse_map
    from coding_model_project.data.quality import quarantine as files
    from coding_model_project.data.quality.preflight import preflight as check

    name, path = given_dataset(name, path)
    loaded = load(
        name,
        path=path,
        data_dir=data_dir,
        revision=revision,
        columns=parse_map(map_columns),
        max_tests=max_tests,
    )
    problems = loaded.problems[:limit]
    if not problems:
        _say_set_aside(loaded)
        raise ConfigError(f"data preflight {name}: no problem can be used ({loaded.origin})")
    sandbox = embedded_sandbox(workers, min_tier)

    async def run():
        async with sandbox:
            return await check(
                problems, sandbox, mutants_per_problem=mutants, repeats=repeats, progress=advance
            )

    n_programs = sum(len(p.gold) + len(p.bad) + bool(mutants and p.gold) for p in problems)
    with progress_bar(name, n_programs) as advance:
        result = asyncio.run(run())
    if quarantine is not None:
        files.write_quarantine(quarantine, problems, result.quarantined, loaded.set_aside)
    if passed is not None:
        files.write_passed(passed, problems, result.quarantined)
    if not as_json:
        _say_set_aside(loaded)
        _say_preflight(result)
    print(json.dumps(_last_line(name, loaded, result, detailed=repeats > 1 or mutants > 0)))
    shown = bool(result.gold.total or result.bad.total)
    if not shown and result.compared_with_itself:
        print(f"{name}: its answers come from its solutions: nothing is shown", file=sys.stderr)
    elif not shown and not result.faults:
        print(f"{name} ships no solutions: nothing is shown of its tests", file=sys.stderr)
    return 0 if result.passed and shown else 1


def _say_set_aside(loaded: Loaded) -> None:
    """Why rows are not used, most frequent reasons first."""
    from collections import Counter

    for note in loaded.notes:
        print(f"note: {note}")
    if not loaded.set_aside:
        return
    print(f"{len(loaded.set_aside)} rows set aside, {len(loaded.problems)} used:")
    for reason, count in Counter(row.reason for row in loaded.set_aside).most_common(N_SHOWN):
        first = next(row.where for row in loaded.set_aside if row.reason == reason)
        print(f"  {count} × {reason} (first: {first})")


def _say_preflight(result: Preflight) -> None:
    if result.without_gold:
        print(f"{result.without_gold} problems have no gold solution")
    for fault, count in result.faults.items():
        print(f"{count} problems not judged: {fault}")
    if result.compared_with_itself:
        print(
            f"{result.compared_with_itself} maths problems not counted: their answer was compared with "
            "the end of their own solution, which shows nothing"
        )
    print(f"gold programs accepted: {result.gold}")
    print(f"known-bad programs rejected: {result.bad}")
    if result.mutation.problems:
        said = result.mutation
        print(
            f"of these mutants: {said.rejected}/{said.judged} rejected, of {said.problems} problems "
            f"({said.with_two_operators} with two operators); {said.set_aside} set aside, which "
            "pass a plain run of the tests"
        )
    if result.flaky:
        print(f"flaky: {', '.join(result.flaky)}")
    for line in result.complaints[:N_SHOWN]:
        print(line, file=sys.stderr)
    if len(result.complaints) > N_SHOWN:
        print(f"and {len(result.complaints) - N_SHOWN} more", file=sys.stderr)


def _last_line(name: str, loaded: Loaded, result: Preflight, *, detailed: bool) -> dict[str, Any]:
    """The line that other programs read; more keys only where more was asked for."""
    line: dict[str, Any] = {
        "dataset": name,
        "problems": result.problems,
        "gold_accepted": result.gold_accepted,
        "bad_total": result.bad_total,
        "bad_rejected": result.bad_rejected,
        "seconds": round(result.seconds, 3),
    }
    if loaded.set_aside:
        line["set_aside"] = len(loaded.set_aside)
    if result.faults:
        line["faults"] = dict(result.faults)
    if result.compared_with_itself:
        line["compared_with_itself"] = result.compared_with_itself
    if detailed:
        said = result.mutation
        line["mutants"] = {
            "judged": said.judged,
            "rejected": said.rejected,
            "set_aside": said.set_aside,
            "problems": said.problems,
            "with_two_operators": said.with_two_operators,
        }
        line["true_positives"] = result.gold.as_json()
        line["true_negatives"] = result.bad.as_json()
        line["flaky"] = list(result.flaky)
        line["quarantined"] = len(result.quarantined)
    return line


@app.command()
def rows(
    problems: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME[=PATH]...",
            help="Data sets by name or file, files of problems, folders of Harbor tasks.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Write the files to this folder.")],
    map_columns: MapColumns = None,
    kind: Annotated[str, typer.Option(help="Write rl or sft rows.")] = "rl",
    prompt: Annotated[
        str, typer.Option(help="Write fenced or bare prompts, as the run's coding.prompt.")
    ] = "fenced",
    use: Annotated[
        str, typer.Option("--as", help="Write rows to train on, or validation rows only.")
    ] = "train",
    mixture: Annotated[
        str | None, typer.Option(help="Mix training rows by source: mbpp=2,tinycode=1.")
    ] = None,
    size: Annotated[
        int | None, typer.Option(help="Write N training rows of the mixture.", min=1)
    ] = None,
    order: Annotated[
        Path | None, typer.Option(help="Order training rows by this file of ids: a curriculum.")
    ] = None,
    max_prompt_tokens: Annotated[
        int | None, typer.Option(help="Leave out prompts of more than N tokens.")
    ] = None,
    tokenizer: Tokenizer = None,
    tests: Annotated[
        Path | None, typer.Option(help="Train by these tests only, as `data select-tests` chose.")
    ] = None,
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Write verl's training files: rows that name problems, and the problems with their tests once.

    Each split goes into a file of its own; data that is test only is refused for training.
    Of a Harbor task the prompt is its instruction, and its verifier judges.
    """
    from coding_model_project.data.governance import Role
    from coding_model_project.data.loaders import given_set, load
    from coding_model_project.data.loaders.mapped import parse_map
    from coding_model_project.data.quality.test_order import read_orders
    from coding_model_project.data.training import mixing
    from coding_model_project.data.training.training_files import (
        Plan,
        RowKind,
        write_training_files,
    )
    from coding_model_project.grading.prompts import PromptStyle

    if (max_prompt_tokens is None) != (tokenizer is None):
        raise ConfigError("--max-prompt-tokens and --tokenizer go together")
    if order is not None and mixture is not None:
        raise ConfigError("--order and --mixture: a curriculum names its rows itself; give one")
    if tests is not None and use != Role.train:
        raise ConfigError("--tests: rows to evaluate on keep all their tests; only --as train")
    plan = Plan(
        kind=RowKind(_one_of("--kind", kind, RowKind)),
        style=PromptStyle(_one_of("--prompt", prompt, PromptStyle)),
        use=Role(_one_of("--as", use, (Role.train, Role.validation))),
        mixture=mixing.parse_mixture(mixture) if mixture else None,
        size=size,
        order=tuple(mixing.read_order(order)) if order else None,
        max_prompt_tokens=max_prompt_tokens,
        tests=read_orders(tests) if tests else None,
        seed=seed,
    )
    count = mixing.token_counter(tokenizer, plan.style) if tokenizer else None
    columns, loaded = parse_map(map_columns), []
    for word in problems:
        name, path = given_set(word)
        mapped = columns if path is not None or len(problems) == 1 else {}
        loaded.append(load(name, path=path, data_dir=data_dir, columns=mapped))
        if not as_json:
            _say_set_aside(loaded[-1])
    written = write_training_files(
        [problem for one in loaded for problem in one.problems],
        out,
        plan,
        count_tokens=count,
        settings={"from": {one.name: one.origin for one in loaded}, "tokenizer": tokenizer},
    )
    if as_json:
        aside = sum(len(one.set_aside) for one in loaded)
        line = {"rows": dict(written.rows), "left_out": dict(written.left_out), "set_aside": aside}
        print(json.dumps(line))
        return
    for name, n_rows in written.rows.items():
        print(f"{out / name}.parquet: {n_rows} rows")
    for reason, count_out in written.left_out.items():
        print(f"left out: {count_out} ({reason})")


@app.command()
def dedup(
    training: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME[=PATH]...", help="Training sets by name or file, or files of problems."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Write problems, manifest and report to this folder.")],
    against: Annotated[
        list[str] | None,
        typer.Option(help="Hold them against these evaluation sets, by commas; all by default."),
    ] = None,
    map_columns: MapColumns = None,
    data_dir: DataDir = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch evaluation sets that are not at hand.")
    ] = False,
    max_tests: Annotated[
        int, typer.Option(help="Keep at most N hidden tests of each problem.", min=1)
    ] = 50,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 1 if an evaluation set is not at hand.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Remove duplicates, and what repeats an evaluation problem, from training sets.

    The last line is JSON.
    """
    from coding_model_project.data.dedup.govern import as_json as pictured
    from coding_model_project.data.dedup.govern import govern
    from coding_model_project.data.governance import EVALUATION_SETS
    from coding_model_project.data.loaders.mapped import parse_map

    governed = govern(
        training,
        against=[name for given in against for name in given.split(",")]
        if against
        else EVALUATION_SETS,
        out=out,
        folder=data_dir,
        download=download,
        max_tests=max_tests,
        columns=parse_map(map_columns),
        say=lambda line: None if as_json else print(line, file=sys.stderr),
    )
    if not as_json:
        for name, why in governed.absent:
            print(f"not checked: {name}: {why}", file=sys.stderr)
        print(f"problems, manifest and report are in {out}")
    picture = pictured(governed)
    keys = ("kept", "removed", "removed_by", "seconds")
    line = {key: picture[key] for key in keys} | {"not_checked": sorted(picture["not_checked"])}
    print(json.dumps(line))
    return 1 if strict and governed.absent else 0


def _one_of(option: str, value: str, known: Any) -> str:
    words = [str(word) for word in known]
    if value not in words:
        raise ConfigError(f"{option}={value}: choose one of {', '.join(words)}")
    return value
