import pytest

from coding_model_project.grading.info_strings import language_of


@pytest.mark.parametrize(
    ("language", "infos"),
    [
        (
            "python",
            "python|Python|PYTHON|py|python3|python3.11|python 3|py3|pypy3|ipython3|{.python}|{python}"
            "|python {.line-numbers}|{.python .numberLines startFrom=1}|python{1,3-4}|python:main.py"
            '|python title="a.py"|python filename=main.py|title="a.py"|file: solution.py|main.py'
            "|src/a_b.py|12:15:src/main.py|language-python|lang-py|{code:python}|code python"
            "|python,ignore|python=|{#id .python}|```python|python # the solution",
        ),
        ("cpp", "cpp|C++|c++17|cpp20|cc|cxx|gnu++17|main.cpp|{.cpp}|cpp:src/main.cc"),
        ("javascript", "js|JavaScript|node|nodejs|mjs|index.js|js {highlight}"),
        ("java", "java|Java|Main.java|java 17|{.java}"),
        ("go", "go|golang|Go|main.go"),
        ("rust", "rust|rs|Rust|main.rs|rust,ignore"),
        ("bash", "bash|sh|shell|zsh|run.sh|bash -e"),
        ("", "|  |code|{}|1|{#solution}|= |title="),
        ("text", "text|text python"),
        ("output", "output|Output:|output of main.py"),
        ("pycon", "pycon"),
        ("python-repl", "python-repl"),
        ("c", "c|C|main.c"),
        ("perl", "perl|pl|Perl|main.pl"),
        ("json", "json|json title=a.py"),
        ("diff", "diff"),
        ("html", "html"),
        ("markdown", "markdown"),
    ],
)
def test_an_info_string_names_its_language(language, infos):
    for info in infos.split("|"):
        assert language_of(info) == language, info


def test_a_long_info_string_takes_no_time():
    assert language_of("x " * 1_000_000) == "x"
    assert language_of("{" * 1_000_000) == ""
