import pytest

from coding_model_project.grading.extract import extract
from coding_model_project.grading.prompts import PromptStyle, solution_message, solve_messages
from tests.fakes import stdin_problem


def test_no_test_is_shown_and_only_fenced_prompts_ask_for_a_fence():
    problem = stdin_problem(("secret in", "secret out"), statement="Add.")
    (bare,) = solve_messages(problem, style=PromptStyle.bare)
    (fenced,) = solve_messages(problem, style=PromptStyle.fenced)
    assert bare == {"role": "user", "content": "Add."}
    assert "```python" in fenced["content"]
    assert "secret" not in fenced["content"]


@pytest.mark.parametrize("language", ["python", "cpp", "javascript", "java", "go", "rust", "bash"])
def test_what_is_shown_as_an_answer_is_what_extract_finds(language):
    for style in PromptStyle:
        answer = solution_message("print(1)", style=style, language=language)["content"]
        found = extract(answer, language=language, bare=style is PromptStyle.bare)
        assert found.code is not None
        assert found.code.strip() == "print(1)"
