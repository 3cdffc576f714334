"""Seconds and memory of data commands on files of full size, with what was planted in them.

    python -m tests.bench.full_size [--rows 20000 100000 400000] [--large 2000 20000] [--work DIR]

Writes a Markdown table of three parts. `data dedup` on ROWS problems with statements as long as
rStar-Coder's (2,000 characters), in which 100 copies of each kind of `KINDS` are planted; `data rows` on
them; and, for LARGE problems with 20 tests of 2.8 kB: loading the file, and the same rows as parquet in
rStar-Coder's columns; `data rows`; and what a reward worker does: open the file of problems, and read 100
of them. Each runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from coding_model_project.data.problems import write_problems
from coding_model_project.types import Problem, Stdin, Test

KINDS = ("exact", "renamed", "rearranged", "reworded 15%", "paraphrased 15%", "paraphrased 20%")
N_PLANTED = 100
_GROUP = 500
"""Number of rows of a group in a parquet file."""
N_SENTENCES, N_WORDS = 20, 15
_VOCABULARY = 40_000
_BOILERPLATE = [f"each of the next lines holds part {n} of the given input data" for n in range(30)]
_LOADING = """
import sys
from coding_model_project.data.loaders import Place, Trail, stream
place = Place(path=sys.argv[2], split="train")
print(sum(len(one.tests) for one in stream(sys.argv[1], place, Trail())))
"""
_WORKER = """
import sys
from coding_model_project.data.problems import ProblemFile
file = ProblemFile(sys.argv[1])
ids = list(file)
read = [len(file[name].tests) for name in ids[:: max(1, len(ids) // 100)]]
"""


class Texts:
    """A generator of statements from a vocabulary whose words are as rare as those of a language."""

    def __init__(self, seed: int) -> None:
        self._numbers = np.random.default_rng(seed)
        self._random = random.Random(seed)
        letters = "bcdfghklmnprstvz"
        pairs = [a + vowel for a in letters for vowel in "aeiou"]
        words = {
            "".join(self._random.choices(pairs, k=self._random.randint(2, 4)))
            for _ in range(90_000)
        }
        self._words = sorted(words)[:_VOCABULARY]
        self._random.shuffle(self._words)
        self._shares = 1 / (np.arange(len(self._words)) + 30.0)
        self._shares /= self._shares.sum()

    def sentences(self) -> list[list[str]]:
        chosen = self._numbers.choice(
            len(self._words), N_SENTENCES * N_WORDS, p=self._shares
        ).tolist()
        words = [self._words[number] for number in chosen]
        return [words[start : start + N_WORDS] for start in range(0, len(words), N_WORDS)]

    def copy(self, sentences: list[list[str]], kind: str) -> list[list[str]]:
        """Return a copy: words replaced by others, sentences in another order."""
        name, _, share = kind.partition(" ")
        part = float(share.removesuffix("%") or 0) / 100
        copied = [
            [self._random.choice(self._words) if self._random.random() < part else w for w in line]
            for line in sentences
        ]
        if name in ("rearranged", "paraphrased"):
            self._random.shuffle(copied)
        return copied

    def statement(self, sentences: list[list[str]], *, letter: str = "n") -> str:
        told = ". ".join(" ".join(line) for line in sentences)
        notes = ". ".join(self._random.sample(_BOILERPLATE, 3))
        return f"Given {letter} and the values of {letter}.\n{told}.\n\nInput\n\n{notes}.\n"


def problems(n_rows: int, *, n_tests: int = 2, test_bytes: int = 8) -> Iterator[Problem]:
    """Yield problems, of which the last ones are copies ("made/copy/KIND/N")."""
    texts = Texts(n_rows)
    n_copies = N_PLANTED * len(KINDS)
    originals = []
    for number in range(n_rows - n_copies):
        sentences = texts.sentences()
        if number % max(1, (n_rows - n_copies) // n_copies) == 0:
            originals.append(sentences)
        yield _problem(f"made/{number}", texts.statement(sentences), n_tests, test_bytes)
    for number in range(n_copies):
        kind = KINDS[number % len(KINDS)]
        letter = "k" if kind == "renamed" else "n"
        text = texts.statement(texts.copy(originals[number % len(originals)], kind), letter=letter)
        yield _problem(f"made/copy/{kind}/{number}", text, n_tests, test_bytes)


def _problem(name: str, statement: str, n_tests: int, test_bytes: int) -> Problem:
    tests = tuple(
        Test(input=Stdin(f"{name} {n} ".ljust(test_bytes, "1")), expected=f"{n}")
        for n in range(n_tests)
    )
    return Problem(id=name, split="train", statement=statement, tests=tests, gold=("print(1)",))


def write_parquet(path: Path, rows: Iterable[Problem]) -> None:
    """Write problems in the columns of rStar-Coder, a group at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = pa.list_(pa.string())
    columns = {
        "question_id": pa.string(),
        "question": pa.string(),
        "inputs": texts,
        "outputs": texts,
    }
    schema = pa.schema(columns)
    with pq.ParquetWriter(path, schema) as writer:
        left = iter(rows)
        while group := list(islice(left, _GROUP)):
            writer.write_table(pa.Table.from_pylist(list(map(_columns, group)), schema))


def _columns(problem: Problem) -> dict[str, object]:
    stdin = [test.input.text for test in problem.tests if isinstance(test.input, Stdin)]
    return {
        "question_id": problem.id,
        "question": problem.statement,
        "inputs": stdin,
        "outputs": [str(test.expected) for test in problem.tests],
    }


def measured(command: list[str]) -> tuple[float, float, float]:
    """Run a command, and return its seconds of wall and CPU time, and its peak memory in MB."""
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.monotonic() - began
    if status:
        raise SystemExit(f"{' '.join(command)}: exit code {os.waitstatus_to_exitcode(status)}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def _row(what: str, n_rows: int, path: Path, spent: tuple[float, float, float], note: str) -> None:
    size, (wall_s, cpu_s, megabytes) = path.stat().st_size / 1e6, spent
    figures = f"{n_rows:,} | {size:,.0f} | {wall_s:.1f} | {cpu_s:.1f} | {megabytes:,.0f}"
    print(f"| {what} | {figures} | {note} |", flush=True)


def _recall(removed: Path) -> str:
    names = [json.loads(line)["id"].split("/") for line in removed.read_text().splitlines()]
    kinds = [name[2] for name in names if name[1] == "copy"]
    others = len(names) - len(kinds)
    found = ", ".join(f"{kind} {kinds.count(kind)}" for kind in KINDS)
    return f"of {N_PLANTED} each: {found}; {others} others removed"


def _make(write: Callable[[Path, Iterable[Problem]], None], path: Path, n_rows: int) -> None:
    """Write LARGE problems in another process: a child's peak memory counts that of its parent."""
    made = get_context("spawn").Process(target=_write, args=(write, path, n_rows))
    made.start()
    made.join()
    if made.exitcode:
        raise SystemExit(f"{path}: exit code {made.exitcode}")


def _write(write: Callable[[Path, Iterable[Problem]], None], path: Path, n_rows: int) -> None:
    write(path, problems(n_rows, n_tests=20, test_bytes=2_800))


def main(rows: list[int], large: list[int], work: Path) -> None:
    """Print the table."""
    cli = ["-m", "coding_model_project", "data"]
    print("| command | rows | file, MB | seconds | CPU seconds | memory, MB | |")
    print("|---|---|---|---|---|---|---|")
    for n_rows in rows:
        path, out = work / f"{n_rows}.jsonl", work / "out"
        write_problems(path, problems(n_rows))
        spent = measured([*cli, "dedup", f"made={path}", "--out", str(out), "--against", "no_set"])
        _row("`data dedup`", n_rows, path, spent, _recall(out / "removed.jsonl"))
        spent = measured([*cli, "rows", f"made={path}", "--out", str(out), "--no-check"])
        _row("`data rows`", n_rows, path, spent, "")
    for n_rows in large:
        path, out = work / f"large-{n_rows}.jsonl", work / "rows"
        _make(write_problems, path, n_rows)
        spent = measured(["-c", _LOADING, "made", str(path)])
        _row("loading JSON lines", n_rows, path, spent, "20 tests of 2.8 kB")
        columns = work / f"large-{n_rows}.parquet"
        _make(write_parquet, columns, n_rows)
        spent = measured(["-c", _LOADING, "rstar_coder", str(columns)])
        _row("loading parquet", n_rows, columns, spent, "the same rows")
        spent = measured([*cli, "rows", f"made={path}", "--out", str(out), "--no-check"])
        _row("`data rows`", n_rows, path, spent, "")
        spent = measured(["-c", _WORKER, str(out / "problems.jsonl")])
        _row("a reward worker", n_rows, out / "problems.jsonl", spent, "opens, reads 100")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="*", default=[20_000, 100_000, 400_000])
    parser.add_argument("--large", type=int, nargs="*", default=[2_000, 20_000])
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        main(given.rows, given.large, Path(folder))
