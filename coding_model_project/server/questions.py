"""/get_prompts: rows of a data set as prompts. The wording is this project's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coding_model_project.server import submit
from coding_model_project.server.requests import BadRequest, Prompt, TestConfig
from coding_model_project.server.row_fields import labels_of, row_id, text_of

_NAMES = {"python": "Python", "cpp": "C++", "nodejs": "JavaScript", "csharp": "C#", "go": "Go"}

_TASK = {
    "en": "Write a complete {language} program. It reads standard input and writes standard output.",
    "zh": "请编写一个完整的 {language} 程序：从标准输入读取数据，并将结果写到标准输出。",
}
_FUNCTION = "Complete this {language} code. Answer with the whole code in one Markdown code block."


def prompt(row: Mapping[str, Any], dataset: str, config: TestConfig) -> Prompt:
    """Return a row's prompt.

    Raises:
        BadRequest: the kind of data set is unknown, or the row lacks a field of the prompt.
    """
    kind = submit.kind_of(dataset, config)
    language = config.language or "python"
    name = _NAMES.get(language, language.capitalize())
    if kind is submit.Kind.humaneval:
        labels = {key: value for key, value in row.items() if key != "prompt"}
        text = f"```{language}\n{text_of(row, 'prompt')}\n```\n\n{_FUNCTION.format(language=name)}"
        return Prompt(id=row_id(row, key="task_id"), prompt=text, labels=labels)
    text = text_of(row, "content")
    if kind is submit.Kind.oj:
        locale = config.locale or "en"
        if locale not in _TASK:
            raise BadRequest(f"config.locale={locale!r}: expected one of {', '.join(_TASK)}")
        text += f"\n\n{_TASK[locale].format(language=name)}"
    return Prompt(id=row_id(row), prompt=text, labels=labels_of(row))
