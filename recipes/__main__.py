"""The list of recipes, for `python -m recipes`."""

import difflib
import sys

from coding_model_project.extras import RECIPES
from coding_model_project.runs.console import reader_may_leave


def page() -> str:
    """Return the list of recipes with an example."""
    width = max(map(len, RECIPES))
    lines = [f"    {name:{width}}  {does}" for name, does in RECIPES.items()]
    start = "Run a recipe with `python -m recipes.NAME [key=value ...]`; --help describes it:"
    example = "For example: python -m recipes.grpo coding.reward.kind=dense coding.seed=2"
    return "\n".join([start, "", *lines, "", example])


@reader_may_leave()
def main(argv: list[str]) -> int:
    """Print the list; return 2 if an argument names a recipe."""
    if not argv or argv[0] in ("-h", "--help"):
        print(page())
        return 0
    close = difflib.get_close_matches(argv[0].removeprefix("recipes."), RECIPES, n=1, cutoff=0.5)
    way = f"run `python -m recipes.{close[0]}`" if close else f"choose one of {', '.join(RECIPES)}"
    print(f"error: {argv[0]}: recipes run as `python -m recipes.NAME`; {way}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
