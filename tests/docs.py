"""The documentation's pages as programs: their blocks are executed, and what they name must exist.

A block's info string says what becomes of it:

    sh, python           executed without torch
    sh e2e, python e2e   executed with torch, as is the rest of its page, once
    python soak          executed by make soak, where the library of that page is installed
    sh exit=1            must end with this exit code instead of 0
    text output          each line is part of a line that the block before it printed
    text, console, ...   only read; a console block's commands must exist, like those in the prose

A python block whose first line is a comment like `# name.py` is saved under that name. `python` of a
block without torch is a process whose imports were done before (`tests.warm_python`).
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests import fresh

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
READ = [
    *PAGES,
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("recipes/*/README.md")),
]

TRAINED = ("my-data.md",)
"""Pages that end_to_end/test_docs_trained.py executes whole; test_trl_training.py executes TRL's."""

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```$", re.M | re.S)
_SPAN = re.compile(r"`([^`\n]+)`")
_FILE_NAME = re.compile(r"# (\S+\.py)\n")
_ENDS = {"|", ">", ">>", "<", "<<", "&", "&&", "||", ";", "(", ")", "{", "}"}
_NO_TORCH = 'raise ImportError("a fast block of the documentation must not import torch")\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    info: tuple[str, ...]
    text: str

    @property
    def language(self) -> str:
        return self.info[0] if self.info else ""

    @property
    def executed(self) -> bool:
        return self.language in ("sh", "python")

    @property
    def needs(self) -> set[str]:
        """The words that a caller must allow; none for a fast block."""
        return {"e2e", "soak"} & set(self.info)

    @property
    def exit_code(self) -> int:
        return next((int(word[5:]) for word in self.info if word.startswith("exit=")), 0)

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(
            page=page,
            line=text.count("\n", 0, match.start()) + 1,
            info=tuple(match["info"].split()),
            text=match["text"],
        )
        for match in _FENCE.finditer(text)
    ]


# ── executing ─────────────────────────────────────────────────────────────────────────────────────


def execute(page: Path, folder: Path, *allowed: str, timeout_s: float) -> int:
    """Execute a page's fast blocks, and those marked with an allowed word, as a reader would.

    Args:
        folder: where they begin, made if it is missing.
        allowed: `e2e`, `soak`. Blocks without these words cannot import torch.
        timeout_s: for each block.

    Returns:
        How many blocks were executed.
    """
    folder.mkdir(exist_ok=True)
    environment = _environment()
    without_torch = _without_torch(_warm(environment), folder)
    output, count = None, 0
    for block in blocks(page):
        if block.executed:
            output = None
            if block.needs <= set(allowed):
                used = environment if block.needs else without_torch
                output = _execute(block, folder, used, timeout_s)
                count += 1
        elif output is not None and block.info == ("text", "output"):
            for line in block.text.splitlines():
                assert line in output, f"{block}: {line!r} is not in the output:\n{output}"
    return count


def _execute(block: Block, folder: Path, environment: dict[str, str], timeout_s: float) -> str:
    """A block's output, standard error included."""
    if block.language == "python" and (named := _FILE_NAME.match(block.text)):
        (folder / named[1]).write_text(block.text)
        return ""
    command = ["bash", "-e"] if block.language == "sh" else ["python", "-"]
    try:
        result = subprocess.run(
            command,
            input=block.text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise AssertionError(f"{block}: not done after {timeout_s:g} s") from None
    assert result.returncode == block.exit_code, (
        f"{block}: exit code {result.returncode}, not {block.exit_code}:\n{result.stdout[-3000:]}"
    )
    return result.stdout


def _environment() -> dict[str, str]:
    """`python` is this environment's own."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "COLUMNS": "120"}


def _warm(environment: dict[str, str]) -> dict[str, str]:
    """`python` has done its imports before."""
    path = f"{fresh.python().parent}{os.pathsep}{environment['PATH']}"
    return environment | {"PATH": path}


def _without_torch(environment: dict[str, str], folder: Path) -> dict[str, str]:
    blocked = folder.with_name(f"{folder.name}_no_torch")
    blocked.mkdir()
    (blocked / "torch.py").write_text(_NO_TORCH)
    return _before_others(environment, blocked)


def _before_others(environment: dict[str, str], folder: Path) -> dict[str, str]:
    others = environment.get("PYTHONPATH")
    return environment | {"PYTHONPATH": os.pathsep.join(filter(None, (str(folder), others)))}


# ── what is named ─────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Command:
    """A `python -m module arguments` somewhere in a page."""

    where: str
    module: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where}: {' '.join(('python -m', self.module, *self.arguments))}"


def commands(page: Path) -> Iterator[Command]:
    """Every `python -m ...` in a page's blocks and in the code of its prose."""
    for where, line in _lines_of_code(page):
        words = _words(line)
        for start, word in enumerate(words[:-2]):
            if word.endswith("python") and words[start + 1] == "-m":
                rest = words[start + 3 :]
                end = next((n for n, word in enumerate(rest) if word in _ENDS), len(rest))
                yield Command(where, words[start + 2], tuple(rest[:end]))


def keys(page: Path) -> Iterator[tuple[str, str]]:
    """Every key of the configuration that a page names, as (where, key): `key=value`, `coding.key`."""
    for where, line in _lines_of_code(page):
        for word in _words(line):
            if found := re.fullmatch(r"[+~]{0,2}([a-z_]\w*(?:\.\w+)+)=.*", word, re.S):
                if not word.startswith("+"):
                    yield where, found[1]
            elif re.fullmatch(r"(?:coding|trainer|actor_rollout_ref|ray_kwargs)(?:\.\w+)+", word):
                yield where, word


def _lines_of_code(page: Path) -> Iterator[tuple[str, str]]:
    for block in blocks(page):
        if block.exit_code:  # wrong on purpose
            continue
        if block.language in ("sh", "console", "bash", "") or "-m" in block.text:
            text = re.sub(r"<<'EOF'\n.*?\nEOF\n", "\n", block.text, flags=re.S)
            for line in text.replace("\\\n", " ").splitlines():
                yield str(block), line
    prose = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text())
    for number, line in enumerate(prose.splitlines(), 1):
        for span in _SPAN.finditer(line):
            yield f"{page.name}:{number}", span[1]


def _words(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
    lexer.wordchars += "=[]{}:@,*$+%!?"
    try:
        return list(lexer)
    except ValueError:  # an apostrophe: no command
        return []
