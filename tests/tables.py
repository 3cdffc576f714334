"""Tables of cases: `tests/data/NAME.json` has lists by name, one case a line, for `parametrize`."""

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


def tables(name: str) -> Any:
    """Return the contents of a file."""
    return json.loads((DATA / f"{name}.json").read_text("utf-8"))
