"""Evaluate a model for Phase 0 by running its programs; every rate has its interval.

    python src/phase0_eval.py --mode simple --model M \\
        --datasets humaneval mbpp_reg codecontests_valid

M is a folder or a hub name, which vLLM loads into this process; with
--base-url, it is the model's name on an OpenAI-compatible server.
A data set is a name, NAME=PATH, or the path of a file of problems.

    --protocol greedy      EVAL@1: one greedy answer per problem
    --protocol sampled     EVAL@k: 16 samples, unbiased pass@1 to pass@16
    --protocol budget      EVAL@budget: 32 samples; pass rate against
                           tokens and judge-seconds spent

The command is `python -m coding_model_project eval run`, with lists
after --datasets and --merge, and these data sets by default.

Writes metrics.json, results.jsonl, completions.jsonl, run_info.json,
summary.json, qa_logs/ and report.html into --out. The same command with
the same --out resumes a stopped or killed evaluation.

To use several processes, run each with its own --out and --shard 0/4 to
3/4; then merge all four folders with --merge and without --shard.

Exit codes: 0 done, 2 wrong usage or configuration, 3 infrastructure
failed, 130 interrupted.
"""

from __future__ import annotations

import sys
import time

from coding_model_project.cli import run_app
from coding_model_project.cli.commands import Commands
from coding_model_project.cli.models import run

LISTS = {"--datasets": "--dataset", "--dataset": "--dataset", "--merge": "--merge"}
"""Options that take several words, which typer does not support, with typer's option for one word."""


def spread(arguments: list[str]) -> list[str]:
    """Convert `--datasets a b` to `--dataset a --dataset b`."""
    words: list[str] = []
    option = None
    for word in arguments:
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            option = LISTS.get(name)
            if option is None:
                words.append(word)
            elif equals:
                words += [option, value]
        else:
            words += [option, word] if option else [word]
    return words


def with_defaults(words: list[str]) -> list[str]:
    """Add the data sets and the folder of Phase 0, unless others are given."""
    from eval_config import PHASE0_SETS

    if "--dataset" not in words:
        words = [*words, *(word for name in PHASE0_SETS for word in ("--dataset", name))]
    if not any(word.partition("=")[0] == "--out" for word in words):
        words = [*words, "--out", time.strftime("outputs/phase0_%Y%m%d_%H%M%S")]
    return words


def main() -> int:
    app = Commands(add_completion=False)
    app.command(help="\b\n" + (__doc__ or "").replace("\n\n", "\n\n\b\n"))(run)
    words = spread(sys.argv[1:])
    return run_app(
        app, "python src/phase0_eval.py", words if "--help" in words else with_defaults(words)
    )


if __name__ == "__main__":
    sys.exit(main())
