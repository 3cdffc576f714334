"""The `data` commands that make training files of evaluations: `sft-rows`, `pairs`, `repair-traces`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from coding_model_project.atomic import write_json
from coding_model_project.cli import options
from coding_model_project.cli.data_checks import run_preflight
from coding_model_project.cli.options import print_table
from coding_model_project.config_key import Option, option
from coding_model_project.data.governance import is_held_out, split_word
from coding_model_project.data.training import samples as sampling
from coding_model_project.data.training.mixing import conversation_counter
from coding_model_project.data.training.pairs import Controls, bias_report, make_pairs, pair_rows
from coding_model_project.data.training.pairs import split as divided
from coding_model_project.data.training.rows import sft_row, write_rows
from coding_model_project.data.training.rows import source as source_of
from coding_model_project.data.training.samples import Sample
from coding_model_project.errors import ConfigError
from coding_model_project.grading.prompts import PromptStyle
from coding_model_project.progress import progress_bar
from coding_model_project.sandbox.sandbox_config import SandboxConfig
from coding_model_project.types import ErrorType, Problem

GOLD = ("missing", "only")
N_NAMED = 5
_EVALUATIONS = Option(
    "Evaluations of training problems.", metavar="EVAL_FOLDER...", is_argument=True
)


# ── sft-rows ──────────────────────────────────────────────────────────────────────────────────────


def sft_rows(
    out: Path = option(..., "Write the rows to this .parquet file, and counts beside it."),
    evaluations: list[Path] = option([], _EVALUATIONS),
    *,
    source: options.OwnProblems,
    n: int = option(4, options.PER_PROBLEM),
    random: bool = option(False, "Choose random programs, by --seed; else the shortest."),
    gold: str | None = option(
        None,
        "Use gold solutions for problems without an accepted program (missing), or exclusively "
        "(only). They are run first, and failing ones are dropped.",
    ),
    prompt: PromptStyle | None = option(
        None, "Write fenced or bare prompts. Default: like the evaluations'."
    ),
    tokenizer: str | None = option(None, options.TOKENIZER),
    seed: int = option(0, options.SEED),
    sandbox: options.Judging,
    where: options.Resumable,
) -> None:
    """Write SFT rows from programs that evaluations accepted, at most n distinct ones per problem.

    Sample training problems with `python -m recipes.baseline coding.evaluation.protocol=sampled`.
    """
    from coding_model_project.evaluation.judged import one_style, read_judged

    if out.suffix != ".parquet":
        raise ConfigError(f"--out={out}: expected a .parquet file")
    if gold is not None and gold not in GOLD:
        raise ConfigError(f"--gold={gold}: expected one of {', '.join(GOLD)}")
    if not evaluations and gold != "only":
        raise ConfigError("data sft-rows: no programs; pass evaluations, or --gold only")
    known = source.load()
    read = [read_judged(path, known) for path in evaluations]
    if not read and prompt is None:
        raise ConfigError("--prompt: required without evaluations; pass fenced or bare")
    style = prompt or one_style(read)
    targets = list({name: one for each in read for name, one in each.problems.items()}.values())
    complete = [] if gold == "only" else [one for each in read for one in each.complete()]
    samples = [one for one in complete if one.error is None]
    rejected: tuple[str, ...] = ()
    if gold is not None:
        targets = targets or _training(known.values())
        solved = {one.problem.id for one in samples}
        unsolved = [one for one in targets if one.gold and one.id not in solved]
        more, rejected = _gold(unsolved, sandbox, where)
        samples += more
    kept, counts = sampling.choose(samples, targets, n=n, by_chance=random, seed=seed)
    if not kept:
        raise ConfigError(
            f"no SFT rows: none of {len(targets)} problems has an accepted sample"
            + ("" if gold else "; draw more samples, or use gold solutions with --gold missing")
        )
    rows = [sft_row(one.problem, one.program, style) for one in kept]
    write_rows(out, rows, trains=True)
    tokens = None
    if tokenizer is not None:  # of whole conversations, as SFT sees them
        each = list(map(conversation_counter(tokenizer), (row["messages"] for row in rows)))
        sums = {"total": sum(each), "mean": fmean(each), "longest": max(each)}
        tokens = {"tokenizer": tokenizer, **sums}
    report = {
        "evaluations": [
            {
                "path": str(one.path),
                "problems": len(one.problems),
                "samples": len(one.samples),
                "accepted": one.accepted,
                "cut_off": one.cut_off,
                "ungradable": one.ungradable,
                "held_out": dict(one.held_out),
            }
            for one in read
        ],
        **asdict(counts),
        "gold_rejected": list(rejected),
        "tokens": tokens,
        "rows": [[one.problem.id, one.origin] for one in kept],
    }
    settings = {"per_problem": n, "random": random, "gold": gold, "prompt": style, "seed": seed}
    settings["problems"] = str(source.file or ", ".join(source.datasets))
    write_json(out.with_suffix(".json"), {"settings": settings, **report})
    _say_sft(report)
    print(f"{out}: {len(rows)} rows")


def _training(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems that have gold solutions and may be used for training."""
    from coding_model_project.evaluation.judged import held_out_line

    gold = [one for one in problems if one.gold]
    found = [one for one in gold if not is_held_out(source_of(one), one.split)]
    kept = {one.id for one in found}
    held_out = Counter(split_word(one.split) for one in gold if one.id not in kept)
    if not found:
        raise ConfigError(
            "--gold: none of these problems has a gold solution and may be used for training"
        )
    if line := held_out_line("left out", "gold solutions", held_out):
        print(line)
    return found


def _gold(
    problems: Sequence[Problem], sandbox: SandboxConfig, where: options.Resumable
) -> tuple[list[Sample], tuple[str, ...]]:
    """Return solutions that pass all tests, and ids of problems with a solution that fails."""
    if not problems:
        return [], ()
    judged = [replace(one, bad=()) for one in problems]
    with progress_bar("solutions", len(problems)) as advance:
        found = asyncio.run(run_preflight(judged, sandbox, where, advance))
    rejected = tuple(found.quarantined)
    return sampling.gold_samples(one for one in problems if one.id not in rejected), rejected


def _say_sft(report: Mapping[str, Any]) -> None:
    counts: list[tuple[str, int]] = []
    for one in report["evaluations"]:
        counts.append((f"{one['path']}: samples of {one['problems']} problems", one["samples"]))
        counts.append(("  accepted", one["accepted"]))
        losses = {"accepted, but cut off": one["cut_off"], "ungradable": one["ungradable"]}
        losses |= {f"left out, of {split} problems": n for split, n in one["held_out"].items()}
        counts += [(f"  {label}", n) for label, n in losses.items() if n]
    counts.append(("duplicates dropped", report["duplicates"]))
    counts.append(("dropped beyond --per-problem", report["over_limit"]))
    counts.append(("problems without a program", len(report["without"])))
    counts += [
        (f"problems with {number}", n) for number, n in report["by_problem"].items() if number
    ]
    if report["kept_gold"]:
        counts.append(("rows with a gold solution", report["kept_gold"]))
    rows = [(label, f"{n:,}") for label, n in counts]
    if tokens := report["tokens"]:
        summary = f"{tokens['total']:,} (mean {tokens['mean']:.0f}, longest {tokens['longest']})"
        rows.append(("tokens", summary))
    print_table(("programs", "number"), rows)
    for name in report["gold_rejected"][:5]:
        options.warn(f"{name}: its gold solution is rejected and not used")


# ── pairs ─────────────────────────────────────────────────────────────────────────────────────────


def pairs(
    evaluations: list[Path] = option(..., _EVALUATIONS),
    out: Path = option(..., "Write the pairs to this .parquet file, and a report beside it."),
    *,
    source: options.OwnProblems,
    contrasts: str = option(
        "wrong_answer,runtime_error,timeout,syntax_error",
        "Pair accepted programs with programs that fail with these errors.",
    ),
    per_problem: int = option(4, options.PER_PROBLEM),
    controls: Controls,
    validation: float = option(
        0.1, "Write the pairs of this share of problems to OUT_validation.parquet."
    ),
    seed: int = option(0, options.SEED),
) -> None:
    """Write preference pairs: an accepted and a failing program for the same problem.

    Ungradable samples are excluded. The last line is JSON.
    """
    from coding_model_project.evaluation.judged import left_out, one_style, read_judged

    known = [str(error) for error in ErrorType]
    names = [name.strip() for name in contrasts.split(",") if name.strip()]
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(
            f"--contrasts={unknown[0]}: unknown error type; expected some of {', '.join(known)}"
        )
    controls = replace(
        controls,
        contrasts=tuple(ErrorType(name) for name in names),
        per_problem=per_problem,
        seed=seed,
    )
    problems = source.load()
    read = [read_judged(path, problems) for path in evaluations]
    tried = {result.problem for each in read for _, result in each.samples}
    if not tried:
        raise ConfigError(f"{', '.join(map(str, evaluations))}: no judged samples")
    style = one_style(read)
    members = [one for one in problems.values() if one.id in tried]
    samples = (one for each in read for one in each.complete())
    paired = make_pairs(samples, members, controls, style)
    train, held_out = divided(paired.pairs, validation, seed)
    report = bias_report(paired)
    report["left_out"] = {**report["left_out"], **left_out(read)}
    files = {out: train, out.with_name(f"{out.stem}_validation{out.suffix}"): held_out}
    _say_bias(report)
    for path, members in files.items():
        if members:
            write_rows(path, pair_rows(members, style), trains=True)
            print(f"{path}: {len(members)} pairs")
        else:
            path.unlink(missing_ok=True)  # left over from an earlier run
    write_json(out.with_suffix(".json"), report)
    print(json.dumps({**report["all"], "train": len(train), "validation": len(held_out)}))


def _say_bias(report: dict[str, Any]) -> None:
    """Print the bias report as a table, then the problems and pairs left out."""
    columns = ("pairs", "gold", "similarity", "chosen longer", "rejected longer")
    rows = [
        (
            name,
            f"{row['pairs']:,}",
            f"{row['gold']:,}",
            f"{row['similarity']:.2f}",
            f"{row['chosen_longer']:.0%}",
            f"{row['rejected_longer']:.0%}",
            *(
                (each and f"{each['chosen']:.0f} / {each['rejected']:.0f}") or ""
                for each in (row["characters"], row["tokens"])
            ),
        )
        for name, row in (*report["contrasts"].items(), ("all", report["all"]))
    ]
    print_table(("accepted against", *columns, "characters", "tokens"), rows, width=110)
    print("characters and tokens: means of chosen / rejected")
    for reason, found in report["problems_without"].items():
        more = ", ..." if found["count"] > N_NAMED else ""
        print(f"{found['count']} problems: {reason} ({', '.join(found['ids'][:N_NAMED])}{more})")
    for reason, count in report["left_out"].items():
        print(f"left out: {count} {reason}")


# ── repair-traces ─────────────────────────────────────────────────────────────────────────────────


def repair_traces(
    evaluations: list[Path] = option(..., _EVALUATIONS),
    out: Path = option(..., "Write the rows to this .parquet file."),
    *,
    source: options.OwnProblems,
    n: int = option(4, options.PER_PROBLEM),
    observation_bytes: int = option(
        160, "Show up to N bytes of a failure, like coding.repair.observation_bytes.", min=60
    ),
    sandbox: options.Judging,
) -> None:
    """Write SFT rows: statement, wrong program, observation, right program.

    Wrong programs are samples that fail a hidden test and a public test; the command runs the public
    tests. Right programs are accepted samples of the same problem, else its first gold solution.
    """
    from coding_model_project.evaluation.judged import held_out_line, one_style, read_judged

    if out.suffix != ".parquet":
        raise ConfigError(f"--out={out}: expected a .parquet file")
    known = source.load()
    read = [read_judged(path, known) for path in evaluations]
    style = one_style(read)
    for one in read:
        if line := held_out_line(f"{one.path}: left out", "samples", one.held_out):
            print(line)
    complete = [one for each in read for one in each.complete()]
    rejected = [one for one in complete if one.error is not None and one.code is not None]
    groups = sampling.by_problem(one for one in complete if one.error is None)
    right = {name: [one.program for one in several] for name, several in groups.items()}
    right |= {name: [one.gold[0]] for name, one in known.items() if name not in right and one.gold}
    candidates = sampling.distinct(one for one in rejected if one.problem.public_tests)
    if not candidates:
        raise ConfigError(
            f"no repair traces: no problem of the {len(rejected)} rejected samples has public tests"
        )
    embedded = options.embedded_sandbox(sandbox)
    with progress_bar("public tests", len(candidates)) as advance:
        wrong = asyncio.run(
            sampling.observed(candidates, style, observation_bytes, embedded, advance)
        )
    traces = sampling.choose_traces(wrong, right, n=n)
    if not traces:
        raise ConfigError(
            f"no repair traces: {len(wrong)} of {len(candidates)} wrong programs fail a public test, and "
            "none of their problems has an accepted sample or a gold solution"
        )
    rows = [sampling.trace_row(one, style) for one in traces]
    write_rows(out, rows, trains=True)
    errors = Counter(one.error for one in traces)
    print(f"rejected samples: {len(rejected)}, distinct with public tests: {len(candidates)}")
    print(f"pass the public tests, so they have no observation: {len(candidates) - len(wrong)}")
    print(", ".join(f"{error} {count}" for error, count in errors.most_common()))
    print(f"{out}: {len(rows)} rows")
