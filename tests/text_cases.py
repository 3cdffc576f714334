"""Programs that stand in text files: a line `=== name | mark` before each; the mark may be missing."""

import re
from pathlib import Path

_CASE = re.compile(r"^=== (.+?)(?: \| (.+))?\n([^\0]*?)(?=^=== |\Z)", re.M)


def text_cases(module: str, file: str) -> list[tuple[str, str, str]]:
    """Return the names, marks and texts in a file beside a module, which is given by its `__file__`."""
    return _CASE.findall(Path(module).with_name(file).read_text())


def sources(module: str) -> dict[str, str]:
    """Return the programs in `sources.txt` beside a module, by name."""
    return {name: text for name, _, text in text_cases(module, "sources.txt")}
