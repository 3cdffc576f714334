"""The reference part of docs/python-api.md, made from docstrings.

python -m tests.api_page --write      brings the page up to date
"""

import inspect
import re
import sys
import typing
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path

import coding_model_project as cmp

PAGE = Path(__file__).parents[1] / "docs" / "python-api.md"
START = "<!-- The rest is made from docstrings: python -m tests.api_page --write -->\n"

ORDER = (
    *("judge", "Judge", "load"),
    *("Problem", "Test", "Stdin", "Call", "Asserts", "Checker", "Instruction", "Limits"),
    *("Verdict", "TestResult", "ErrorType"),
    *("load_harbor_tasks", "grade_harbor", "HarborTask", "HarborSandbox", "SandboxResult"),
    *("SandboxFactory", "harbor_sandbox"),
    *("CodingModelError", "ConfigError", "UngradableError", "SandboxError", "CheckerError"),
    "DataError",
)
ALIASES = {
    "SandboxFactory": "`Callable[[Path, int], Awaitable[HarborSandbox]]`: an async function that makes "
    "a sandbox from a task's environment/ folder, for a number of seconds."
}
"""Descriptions of type aliases, which have no docstring."""


def page() -> str:
    """The whole page: its hand-written part, and the reference."""
    written = PAGE.read_text().partition(START)[0]
    return written + START + "\n" + "\n".join(_entry(name) for name in ORDER)


def _entry(name: str) -> str:
    value = getattr(cmp, name)
    if name in ALIASES:
        return f"### `cmp.{name}`\n\n{ALIASES[name]}\n"
    lines = [f"### `cmp.{name}{_signature(value)}`", "", _text(value)]
    for method, what in vars(value).items() if inspect.isclass(value) else ():
        plain = getattr(what, "__func__", what)
        if isinstance(plain, property):
            lines += ["", f"**`.{method}`** {_text(plain.fget)}"]
        elif inspect.isfunction(plain) and not method.startswith("_"):
            lines += ["", f"**`.{method}{_signature(plain)}`** {_text(plain)}"]
    return "\n".join(lines) + "\n"


def _signature(value: object) -> str:
    if inspect.isclass(value) and issubclass(value, Exception):
        return ""
    if inspect.isclass(value) and (issubclass(value, Enum) or typing.Protocol in value.__mro__):
        return ""
    if is_dataclass(value):
        shown = []
        for field in fields(value):
            if field.kw_only and "*" not in shown:
                shown.append("*")
            needed = field.default is field.default_factory is MISSING
            shown.append(field.name if needed else f"{field.name}=…")
        return f"({', '.join(shown)})"
    parameters = inspect.signature(value).parameters.values()  # type: ignore[arg-type]
    shown, keyword_only = [], False
    for one in parameters:
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not keyword_only:
            shown.append("*")
            keyword_only = True
        default = "" if one.default is one.empty else f"={one.default!r}"
        shown.append(one.name + default)
    return f"({', '.join(shown)})"


def _text(value: object) -> str:
    text = inspect.cleandoc(getattr(value, "__doc__", None) or "")
    if isinstance(value, type) and is_dataclass(value):
        told = [f"- `{field}`: {about}" for field, about in _attributes(value).items()]
        text += "\n\n" * bool(told) + "\n".join(told)
    if isinstance(value, type) and issubclass(value, Enum):
        text += "\n\n" + ", ".join(f"`{member}`" for member in value) + "."
    text = re.sub(r"^(Args|Returns|Raises|Warns):\n", r"\n\1:\n\n", text, flags=re.M)
    text = re.sub(r"^    (\w+): ", r"- `\1`: ", text, flags=re.M)
    text = re.sub(r"^ {8,}", "  ", text, flags=re.M)
    text = re.sub(r"^ {4}", "", text, flags=re.M)
    text = re.sub(r"\n{3,}", "\n\n", text)
    return text.rstrip()


def _attributes(value: type) -> dict[str, str]:
    """The strings below a class's fields, by field."""
    import ast

    (body,) = ast.parse(inspect.getsource(value)).body
    found: dict[str, str] = {}
    for before, after in zip(typing.cast(ast.ClassDef, body).body, body.body[1:], strict=False):  # type: ignore[attr-defined]
        if isinstance(before, ast.AnnAssign) and isinstance(after, ast.Expr):
            text = getattr(after.value, "value", None)
            if isinstance(text, str) and isinstance(before.target, ast.Name):
                found[before.target.id] = " ".join(text.split())
    return found


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    PAGE.write_text(page())
