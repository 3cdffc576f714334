"""Train a tiny language model from scratch and improve it measurably with GRPO, on two CPU cores.

    python -m recipes.demo            (`make demo` also sets up the environment)

base: a tiny model pre-trained from scratch on programs with common mistakes
sft: SFT on a few verified demonstrations of the easy levels; sft_continued: twice as many steps
grpo: verl's own trainer from the SFT model, rewarded by running its programs

A phase whose result exists is skipped; delete outputs/demo to start over. The demo prints a table and
writes outputs/demo/{summary.json, model/}. Exit code 1 if the gains are not significant.
"""

import sys

from coding_model_project.errors import INTERRUPTED, CodingModelError
from coding_model_project.runs.console import reader_may_leave

if __name__ == "__main__":
    if sys.argv[1:]:
        if sys.argv[1] not in ("-h", "--help"):
            print(f"error: {sys.argv[1]}: recipes.demo takes no arguments", file=sys.stderr)
            raise SystemExit(2)
        with reader_may_leave():
            print((__doc__ or "").strip())
        raise SystemExit(0)
    from coding_model_project.launch.demo import demo  # slow to import, and not needed for --help

    try:
        raise SystemExit(demo.main())
    except CodingModelError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt:
        print("interrupted; run the same command again to resume", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None
