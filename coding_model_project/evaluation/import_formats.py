"""Sample files of other tools.

EvalPlus and human-eval (https://github.com/evalplus/evalplus, its README): JSON lines with `task_id` and
either `solution`, the whole program, or `completion`, the continuation of the prompt.

lm-evaluation-harness (its option to log samples): JSON lines with `doc`, the row of the data set;
`arguments`, the prompt; `resps`, the answers; `filtered_resps`, the scored texts. A task with several
filters has a line for each.

LiveCodeBench (https://github.com/LiveCodeBench/LiveCodeBench, its `lcb_runner`): a JSON list with, for
each problem, `question_id`, `output_list` (the answers) and `code_list` (the programs found in them).
The input of its custom evaluator has the programs alone.

verl (`trainer.rollout_data_dir`, `trainer.validation_data_dir`): JSON lines with `input` and `output`,
without the problem's id.

Inspect (https://inspect.aisi.org.uk/eval-logs.html): a JSON document, whose `samples` have `id`, `input`
and `output`. Its other form, .eval, is a zip file that Python 3.11 cannot unpack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from coding_model_project import strict_json
from coding_model_project.errors import ConfigError, DataError

Row = Mapping[str, Any]


class Format(StrEnum):
    """A tool whose sample files can be read."""

    evalplus = "evalplus"
    lm_eval = "lm-eval"
    verl = "verl"
    inspect = "inspect"
    livecodebench = "livecodebench"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignSample:
    """A sample of another tool, with hints to its problem."""

    place: str
    """File and line, for error messages."""
    task: str | None
    """The tool's name of the problem."""
    texts: tuple[str, ...]
    """Texts that may contain the statement: the prompt, fields of the data set's row."""
    text: str
    """The completion."""
    program: str | None = None
    """The program that the tool extracted."""
    continues: bool = False
    """True if the completion continues the problem's code."""
    tokens: int = 0
    """Generated tokens; 0 if the tool does not report them."""
    truncated: bool = False
    """True if the token limit cut it off."""


def read_samples(path: Path) -> tuple[Format, list[ForeignSample]]:
    """Read a file of samples, whose tool its first row shows.

    Raises:
        ConfigError: the file is missing, or its tool is unknown.
        DataError: a line is damaged or lacks a field; names file and line.
    """
    if path.suffix == ".eval":
        raise ConfigError(
            f"{path}: Inspect's .eval logs cannot be read; convert it to JSON with `inspect log convert`"
        )
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    if path.suffix == ".json":
        document = _decoded(content, str(path))
        several = document if isinstance(document, list) else [document]
        rows = [_row(one, str(path)) for one in several]
    else:
        lines = [line for line in content.splitlines() if line.strip()]
        named = [(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]
        rows = [_row(_decoded(line, place), place) for line, place in named]
    if not rows:
        raise DataError(f"{path}: no samples")
    found = next((one for one, known in _FIELDS if known <= rows[0].keys()), None)
    if found is None:
        raise ConfigError(
            f"{path}: unknown format with fields {', '.join(sorted(rows[0])[:8])}; expected samples of "
            "evalplus (task_id, solution), lm-eval (doc, resps), verl (input, output), LiveCodeBench "
            "(question_id, code_list) or a JSON log of Inspect"
        )
    try:
        answers = list(_READERS[found](path, rows))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{path}: not a samples file of {found} ({error!r})") from error
    for answer in answers:
        if not all(
            isinstance(one, str) for one in (answer.text, answer.program or "", *answer.texts)
        ):
            raise DataError(f"{answer.place}: its prompt or answer is not a text")
    return found, answers


def _decoded(content: bytes, place: str) -> Any:
    try:
        return strict_json.loads(content)
    except ValueError as error:
        raise DataError(f"{place}: not JSON ({error})") from error


def _row(value: Any, place: str) -> Row:
    if not isinstance(value, dict):
        raise DataError(f"{place}: not a JSON object")
    return value


_FIELDS = (
    (Format.evalplus, {"task_id", "solution"}),
    (Format.evalplus, {"task_id", "completion"}),
    (Format.lm_eval, {"doc", "resps"}),
    (Format.verl, {"input", "output"}),
    (Format.inspect, {"eval", "samples"}),
    (Format.livecodebench, {"question_id", "code_list"}),
)
"""Fields by which a tool's row is known."""


def _evalplus(path: Path, rows: Sequence[Row]) -> Iterator[ForeignSample]:
    for number, row in enumerate(rows, 1):
        solution = row.get("solution")
        yield ForeignSample(
            place=f"{path}, line {number}",
            task=str(row["task_id"]),
            texts=(),
            text=row["completion"] if solution is None else solution,
            program=solution,
            continues=solution is None,
        )


def _lm_eval(path: Path, rows: Sequence[Row]) -> Iterator[ForeignSample]:
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
            yield ForeignSample(
                place=f"{path}, line {number}",
                task=str(doc["task_id"]) if "task_id" in doc else None,
                texts=tuple(texts),
                text=text,
                program=scored[place] if len(scored) == len(answers) else None,
            )


def _verl(path: Path, rows: Sequence[Row]) -> Iterator[ForeignSample]:
    for number, row in enumerate(rows, 1):
        yield ForeignSample(
            place=f"{path}, line {number}", task=None, texts=(row["input"],), text=row["output"]
        )


def _inspect(path: Path, rows: Sequence[Row]) -> Iterator[ForeignSample]:
    # An argument of our own task: answers are programs without a fence.
    bare = (rows[0]["eval"].get("task_args") or {}).get("bare") is True
    for sample in rows[0]["samples"]:
        name = f"{path}, sample {sample['id']}, epoch {sample['epoch']}"
        if sample.get("error"):
            raise DataError(
                f"{name}: ended with an infrastructure error, so it has no answer; run it again "
                "(inspect eval-retry)"
            )
        output = sample["output"]
        attached = sample.get("attachments") or {}
        prompt = sample["input"]
        parts = (
            [prompt] if isinstance(prompt, str) else [_content(one["content"]) for one in prompt]
        )
        choice = output["choices"][0]
        text = _attached(_content(choice["message"]["content"]), attached)
        yield ForeignSample(
            place=name,
            task=str(sample["id"]),
            texts=tuple(_attached(part, attached) for part in parts),
            text=text,
            program=text if bare else None,
            tokens=(output.get("usage") or {}).get("output_tokens", 0),
            truncated=choice.get("stop_reason") == "max_tokens",
        )


def _livecodebench(path: Path, rows: Sequence[Row]) -> Iterator[ForeignSample]:
    seen = set[str]()
    for row in rows:
        place = f"{path}, {row['question_id']}"
        programs = row["code_list"]
        answers = row.get("output_list", programs)
        if not isinstance(programs, list) or not isinstance(answers, list):
            raise DataError(f"{place}: code_list and output_list must be lists of texts")
        if len(programs) != len(answers):
            raise DataError(f"{place}: {len(answers)} answers with {len(programs)} programs")
        if place in seen:
            raise DataError(f"{place}: a second row; expected one row with all samples")
        seen.add(place)
        for number, (program, text) in enumerate(zip(programs, answers, strict=True)):
            yield ForeignSample(
                place=f"{place}, sample {number}",
                task=f"livecodebench/{row['question_id']}",
                texts=(),
                text=text,
                # A whole answer is read by both rules; its program here is the publisher's reading. Of
                # a base model's answer that is the answer itself, without blanks at the ends.
                program=program if str(text).strip() == str(program).strip() else None,
            )


_READERS: Mapping[Format, Callable[[Path, Sequence[Row]], Iterator[ForeignSample]]] = {
    Format.evalplus: _evalplus,
    Format.lm_eval: _lm_eval,
    Format.verl: _verl,
    Format.inspect: _inspect,
    Format.livecodebench: _livecodebench,
}


def _content(content: Any) -> str:
    """Return the text of a message, without reasoning parts."""
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in content if part["type"] == "text")


def _attached(text: str, attached: Mapping[str, str]) -> str:
    """Return a text, resolving a reference to an attachment."""
    return attached.get(text.removeprefix("attachment://"), text)


def _flat(value: Any) -> list[str]:
    """Flatten nested lists of texts."""
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
