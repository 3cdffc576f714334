"""Make a training set without duplicates and evaluation problems, and write a report.

    python src/data_governance.py --train codecontests_train --out outputs/data_governance

A set is a name, NAME=PATH or a path. Names are searched for under --data-dir ($CODING_DATA_DIR, ./data).
Exit codes: 0 done, 1 with --strict if an evaluation set was not found, 2 wrong usage, 3 damaged data.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from coding_model_project.data.dedup.govern import DEFAULT_MAX_TESTS, govern
from coding_model_project.data.governance import EVALUATION_SETS
from coding_model_project.errors import CodingModelError


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--train", nargs="+", default=["codecontests_train"], metavar="SET")
    parser.add_argument("--against", nargs="*", default=list(EVALUATION_SETS), metavar="SET")
    parser.add_argument("--out", type=Path, default=Path("outputs/data_governance"))
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument(
        "--download", action="store_true", help="Download evaluation sets that are missing."
    )
    parser.add_argument("--max-tests", type=int, default=DEFAULT_MAX_TESTS)
    parser.add_argument("--strict", action="store_true")
    given = parser.parse_args()
    try:
        governed = govern(
            given.train,
            against=given.against,
            out=given.out,
            folder=given.data_dir,
            download=given.download,
            max_tests=given.max_tests,
            say=lambda line: print(line, file=sys.stderr),
        )
    except CodingModelError as error:
        print("error:", error, file=sys.stderr)
        return error.exit_code
    for name, why in governed.absent:
        print(f"not checked: {name}: {why}", file=sys.stderr)
    decision = governed.decision
    print(
        f"{len(decision.kept)} kept, {len(decision.removed)} removed; see {given.out / 'report.md'}"
    )
    return 1 if given.strict and governed.absent else 0


if __name__ == "__main__":
    sys.exit(main())
