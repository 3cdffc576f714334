"""Values of a row's columns: decoded, found, and read as prompts, answers, programs and limits."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from coding_model_project import strict_json
from coding_model_project.data.loaders.base import Row, Unusable
from coding_model_project.grading import fences
from coding_model_project.grading.extract import extract
from coding_model_project.grading.maths.final_answer import final_answer
from coding_model_project.grading.wellformed import acts
from coding_model_project.row_readers import shown
from coding_model_project.sandbox.embedded.languages.toolchains import EMBEDDED
from coding_model_project.types import Turn


def decoded_of(value: Any) -> Any:
    """Decode JSON text, however often it was encoded, or the `str` of a Python value.

    Returns:
        The value; text that is neither is returned unchanged. Tuples and arrays become lists.

    Raises:
        Unusable: it is JSON with a value that nothing can handle.
    """
    for _ in range(4):
        if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "[", '"'):
            break
        try:
            value = strict_json.loads(value)
        except strict_json.UnusableValue as error:
            raise Unusable(str(error)) from error
        except ValueError:
            try:
                value = ast.literal_eval(value.strip())
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                break
    if tolist := getattr(value, "tolist", None):
        return tolist()
    return list(value) if isinstance(value, tuple) else value


def json_of(text: str) -> Any:
    """Decode a test's argument or value.

    Raises:
        Unusable: it is not JSON.
    """
    try:
        return strict_json.loads(text)
    except ValueError as error:
        raise Unusable(f"a test's argument or value is not JSON: {error}") from error


def looks_like_code(value: Any) -> bool:
    """Return whether a value is text with a Python statement, or with the word `assert`."""
    return isinstance(value, str) and (
        re.search(
            r"^\s*(assert\b|def \w+\(|async def |class \w+|import \w|from \w+ import)", value, re.M
        )
        is not None
        or "assert" in value
    )


# ── final answers ─────────────────────────────────────────────────────────────────────────────────


NESTED = (
    "unit_tests", "test_cases", "hidden_tests", "tests", "test_list", "cases", "input_output",
    "verification_info", "verifier_metadata", "info", "reward_model", "reward_spec", "ground_truth",
)  # fmt: skip
"""Keys of objects that hold the tests or the answer, the innermost first."""

_LONGEST_ANSWER = 1000
"""Maximum length of a final answer, in characters. Longer ones are solutions, or programs."""


def answer_of(value: Any, field: str) -> str:
    """Return a final answer: text, a number, the end of a solution, or a list of one of these.

    Raises:
        Unusable: it is empty or of another form; says what was seen.
    """
    decoded = decoded_of(value)
    if isinstance(value, str) and not _is_list_of_one_text(decoded):
        decoded = value
    match decoded:
        case bool() | None:
            raise Unusable(f"field '{field}' is {shown(decoded)}, not an answer")
        case int():
            return str(decoded)
        case Decimal():
            return format(decoded.normalize(), "f")
        case float():
            return str(int(decoded)) if decoded.is_integer() else repr(decoded)
        case str():
            return _final(decoded.strip(), field)
        case [one]:
            return answer_of(one, field)
        case list() if decoded and all(one == decoded[0] for one in decoded):
            return answer_of(decoded[0], field)
        case Mapping():
            inner = next((decoded[name] for name in NESTED if decoded.get(name)), None)
            if inner is not None:
                return answer_of(inner, field)
    raise Unusable(f"field '{field}' is {shown(decoded)}, not one answer")


def _final(text: str, field: str) -> str:
    if not text:
        raise Unusable("the answer is empty")
    if "####" in text or "\\boxed" in text:
        found = final_answer(text)
        text = found.text if found is not None else text
    if len(text) > _LONGEST_ANSWER or looks_like_code(text) or _is_program(text):
        raise Unusable(f"field '{field}' is {shown(text)}, not a final answer")
    return text


def _is_program(text: str) -> bool:
    """Return whether a text of several lines is a Python program that does something."""
    if "\n" not in text:
        return False
    try:
        return any(map(acts, ast.parse(text).body))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_list_of_one_text(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1 and isinstance(value[0], str)


# ── prompts, as text or as a conversation ─────────────────────────────────────────────────────────


_CONTENT = ("content", "value", "text")
_ROLES = {"human": "user", "gpt": "assistant", "developer": "system"}
"""Names of roles in other forms of conversations, with ours."""

_OF_MESSAGES = ("input", "messages", "prompt", "conversations")
"""Keys of objects that hold a conversation, such as NeMo Gym's `responses_create_params`."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The text of a prompt, and its conversation if that is more than one user's message."""

    text: str
    turns: tuple[Turn, ...] = ()


def prompt_of(value: Any, field: str) -> Prompt:
    """Return the prompt in a field: text, messages, or JSON text of messages.

    Answers at the end of a conversation are left out: a model is to write them. The system's message and
    earlier turns stay.

    Raises:
        Unusable: it is neither, has no user's message, or has an image or a tool call.
    """
    if isinstance(value, str) and value.lstrip()[:2] in ("[{", "[ ", "[\n", '{"'):
        try:
            decoded = strict_json.loads(value)
        except ValueError:
            decoded = None
        value = decoded if _is_conversation(decoded) else value
    if isinstance(value, str):
        return Prompt(value.replace("\r\n", "\n"))
    if isinstance(value, Mapping) and "role" in value:
        value = [value]
    if isinstance(value, Mapping):
        inner = next((value[name] for name in _OF_MESSAGES if value.get(name)), None)
        if inner is None:
            raise Unusable(f"field '{field}' is an object without {', '.join(_OF_MESSAGES)}")
        return prompt_of(inner, field)
    if not _is_conversation(value):
        raise Unusable(f"field '{field}' is not text and not a list of messages")
    turns = [_turn_of(turn) for turn in value]
    while turns and turns[-1].role != "user":
        turns.pop()
    if not turns:
        raise Unusable("the prompt has no user turn")
    text = "\n\n".join(turn.content for turn in turns)
    return Prompt(text, tuple(turns) if len(turns) > 1 else ())


def _is_conversation(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and len(value) > 0
        and all(isinstance(turn, Mapping) and {"role", "from"} & turn.keys() for turn in value)
    )


def _turn_of(turn: Mapping[str, Any]) -> Turn:
    role = str(turn.get("role") or turn.get("from"))
    role = _ROLES.get(role, role)
    if role not in ("system", "user", "assistant") or turn.get("tool_calls"):
        raise Unusable(f"the prompt has a turn of role {role!r} or with tool calls")
    content = next((turn[name] for name in _CONTENT if turn.get(name) is not None), "")
    return Turn(role=role, content=_message_text(content).replace("\r\n", "\n"))


def _message_text(content: Any) -> str:
    """Return a message's text, which may come in parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        raise Unusable("a message of the prompt is not text")
    texts = [
        part if isinstance(part, str) else part.get("text")
        for part in content
        if isinstance(part, str | Mapping)
    ]
    if len(texts) != len(content) or not all(isinstance(one, str) for one in texts):
        raise Unusable("the prompt holds an image or another part that is not text")
    return "\n".join(str(one) for one in texts)


# ── columns ───────────────────────────────────────────────────────────────────────────────────────


def value_at(row: Row, column: str) -> Any:
    """Return the value at a column, "a.b" within objects, or at the first of "a|b" that has one."""
    for one in column.split("|"):
        value = _nested(row, one)
        if value is not None and value != "":
            return value
    return None


def has_column(row: Row, column: str) -> bool:
    """Return whether a row has a column, even without a value there, or each of "a+b"; "." is the row."""
    head, dot, _ = column.partition(".")
    nested = bool(dot) and head in row and _nested(row, column) is not None
    if column in row or column == "." or nested:
        return True
    return "+" in column and all(has_column(row, one) for one in column.split("+"))


def _nested(value: Any, column: str) -> Any:
    value = decoded_of(value)
    head, dot, rest = column.partition(".")
    if column == ".":
        return value
    if isinstance(value, Mapping):
        if column in value:
            return value[column]
        return _nested(value[head], rest) if dot and head in value else None
    if (
        isinstance(value, list)
        and re.fullmatch(r"\d+|-1", head)
        and value
        and int(head) < len(value)
    ):
        return _nested(value[int(head)], rest) if dot else value[int(head)]
    return None


# ── programs, levels, days, limits ──────────────────────────────────────────────────────────────────

MAX_SOLUTIONS = 5
"""Maximum number of gold and of known-bad programs per problem; some have hundreds."""

_DIFFICULTIES = {
    "introductory": 1, "interview": 2, "competition": 3, "easy": 1, "medium": 2, "hard": 3,
    "EASY": 1, "MEDIUM": 2, "MEDIUM_HARD": 3, "HARD": 4, "VERY_HARD": 5,
}  # fmt: skip
"""Levels in words; those in capitals are TACO's five."""

_PYTHON_3 = {"3", "py3", "python3", "python", "pypy3", "python 3"}
_MEGABYTES = {"g": 1024.0, "m": 1.0, "k": 1 / 1024}

_SPOKEN = {
    *("en", "english", "zh", "cn", "chinese", "fr", "de", "es", "ru", "ja", "ko", "multilingual")
}


def language_of(value: object) -> str:
    """Return our name of a programming language; a natural language and nothing mean Python.

    Raises:
        Unusable: its programs cannot be judged here.
    """
    word = fences.language_of(str(value or ""))
    if not word or word in _SPOKEN:
        return "python"
    if word not in ("python", *EMBEDDED, "text"):
        raise Unusable(f"programs in {value}, which is not judged here")
    return word


def programs_of(value: Any) -> tuple[str, ...]:
    """Return the first few distinct Python programs: texts, or texts with their language."""
    decoded = decoded_of(value)
    value = decoded if isinstance(decoded, (list, Mapping)) else value
    if not value:
        return ()
    if isinstance(value, Mapping):
        codes: Any = (
            value.get("solution") if value.get("solution") is not None else value.get("code")
        )
        languages: Any = value.get("language")
        if not isinstance(codes, (list, tuple)):
            codes, languages = [codes], [languages]
        pairs = zip(languages, codes, strict=True)
        value = [code for language, code in pairs if str(language).lower() in _PYTHON_3]
    found = []
    for one in [value] if isinstance(value, str) else value:
        if isinstance(one, Mapping):
            found += programs_of({"language": "python", **one})
        elif isinstance(one, str) and one.strip():
            code = extract(one, bare=True).code if "```" in one else one
            found += [code.replace("\r\n", "\n")] if code else []
    return tuple(dict.fromkeys(found))[:MAX_SOLUTIONS]


def texts_of(value: Any) -> tuple[str, ...]:
    """Return a text, or the texts of a list."""
    if isinstance(value, str):
        return (value.replace("\r\n", "\n"),) if value.strip() else ()
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(one.replace("\r\n", "\n") for one in value if isinstance(one, str))


def difficulty_of(value: Any) -> int | None:
    """Return a level as a whole number: a number, "Level 3", "EASY"; None for others and for 0."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) or None if value == int(value) else None
    word = str(value).strip().lower()
    if found := re.fullmatch(r"(?:level\s*)?(\d+)(?:\.0)?", word):
        return int(found[1]) or None
    return _DIFFICULTIES.get(str(value), _DIFFICULTIES.get(word))


def date_of(value: Any) -> str | None:
    """Return the day of a date or time."""
    try:
        return date.fromisoformat(str(value)[:10]).isoformat()
    except ValueError:
        return None


def seconds_of(value: Any) -> float | None:
    """Return a time limit in seconds: a number, {seconds, nanos}, "2.0 seconds" or milliseconds."""
    if isinstance(value, Mapping):
        return (value.get("seconds") or 0) + (value.get("nanos") or 0) / 1e9
    number, unit = _amount(value)
    if number is None:
        return None
    return number / 1000 if unit.startswith(("ms", "milli")) or number >= 100 else number


def megabytes_of(value: Any) -> float | None:
    """Return a memory limit in MB: a number of MB or bytes, or "1.0 gigabytes"."""
    number, unit = _amount(value)
    if number is None:
        return None
    return number / 2**20 if number > 1e6 else number * _MEGABYTES.get(unit[:1], 1.0)


def _amount(value: Any) -> tuple[float | None, str]:
    found = re.match(r"\s*(\d+(?:\.\d+)?)\s*(\w*)", "" if value is None else str(value))
    return (float(found[1]) or None, found[2].lower()) if found else (None, "")
