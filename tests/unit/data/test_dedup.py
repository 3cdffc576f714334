"""Duplicates are found by the right signal; boilerplate and siblings are not duplicates."""

import json
import random
from dataclasses import replace

import pytest

from coding_model_project import cli
from coding_model_project.data.dedup.documents import document, shape
from coding_model_project.data.dedup.govern import decide, govern
from coding_model_project.data.dedup.search import Kind, contaminated, matches
from coding_model_project.data.problems import read_problems, write_problems
from coding_model_project.data.rates import NONE, Rate
from coding_model_project.errors import ConfigError
from coding_model_project.types import Asserts, Problem, Stdin, Test
from tests.bench import made_problems
from tests.bench.dedup import KINDS, bench
from tests.text_cases import sources

SOURCES = sources(__file__)

RNG = random.Random(5)
MEANINGS = [made_problems.meaning(RNG) for _ in range(60)]
CODE = SOURCES["code"]


def made(number, what, how, *, source="mine", split="train", tests=False):
    text = made_problems.statement(what, how)
    return made_problems.problem(f"{source}/{number}", split, what, text, tests=tests)


ORIGINALS = [made(i, what, made_problems.rendering(RNG)) for i, what in enumerate(MEANINGS)]
HOW = made_problems.rendering(random.Random(1))
WHAT = made_problems.meaning(random.Random(2))
PLANTED = made("original", WHAT, HOW)


def kinds(*problems):
    """The signals that show the last two problems to be the same, among sixty others."""
    everything = [*map(document, ORIGINALS), *map(document, problems)]
    last = len(everything) - 2, len(everything) - 1
    found = matches(everything)
    assert all((match.a, match.b) == last for match in found), "something else was taken for a copy"
    return [match.kind for match in found]


@pytest.mark.parametrize(
    ("copied", "signals"),
    [
        (replace(PLANTED, id="mine/copy"), {Kind.exact}),
        (
            replace(PLANTED, id="mine/copy", statement=PLANTED.statement.upper().replace(".", "!")),
            {Kind.normalised},
        ),
        *(
            (made("copy", WHAT, turn(HOW, random.Random(3))), set(Kind) - {Kind.exact})
            for turn in (made_problems.renamed, made_problems.rearranged)
        ),
    ],
    ids=["exact", "normalised", "renamed", "rearranged"],
)
def test_a_copy_is_found_by_its_strongest_signal(copied, signals):
    assert kinds(PLANTED, copied)[0] in signals


def test_reworded_wholly_is_shown_by_its_tests_alone():
    how = made_problems.paraphrased(HOW, random.Random(3), share=1.0)
    assert kinds(PLANTED, made("copy", WHAT, how)) == []
    original = made("original", WHAT, HOW, tests=True)
    assert kinds(original, made("copy", WHAT, how, tests=True)) == [Kind.tests]


def test_siblings_are_different_problems():
    for seed in range(10, 15):
        sibling = made_problems.sibling(WHAT, random.Random(seed))
        assert kinds(PLANTED, made("sibling", sibling, HOW)) == []


def test_solutions_equal_but_for_names():
    renamed = CODE.replace("values", "xs").replace("total", "acc").replace("best", "solve")
    assert shape(CODE) == shape(renamed) != shape(CODE.replace("% 2", "% 3"))
    assert shape("print(1)") is None
    assert shape("def broken(") is None
    first, second = ORIGINALS[0], ORIGINALS[1]
    found = matches(
        [document(replace(first, gold=(CODE,))), document(replace(second, gold=(renamed,)))]
    )
    assert [match.kind for match in found] == [Kind.code]


def test_assertions_are_compared_whatever_the_function_is_called():
    def problem(name, function):
        sources = [f"assert {function}({n}, [1, 2]) == {n * 7}" for n in range(3)]
        tests = tuple(Test(input=Asserts(source=s, entry_point=function)) for s in sources)
        statement = f"{name} " * 3 + "\n" + "\n".join(sources)
        return document(Problem(id=f"mine/{name}", split="train", statement=statement, tests=tests))

    assert [match.kind for match in matches([problem("a", "f"), problem("b", "grow")])] == [
        Kind.tests
    ]


def test_trivial_tests_show_nothing():
    tests = tuple(Test(input=Stdin(str(n)), expected="1") for n in range(5))
    many = [document(replace(problem, tests=tests)) for problem in ORIGINALS[:30]]
    assert matches(many) == []


def test_ngrams_find_an_evaluation_problem_within_a_longer_text():
    held_out = document(replace(PLANTED, id="humaneval/7", split="test"))
    longer = " ".join([ORIGINALS[3].statement, PLANTED.statement, ORIGINALS[4].statement])
    within = document(replace(PLANTED, id="mine/long", statement=longer))
    documents = [*map(document, ORIGINALS), held_out, within]
    (match,) = contaminated(documents)
    assert (documents[match.a].id, documents[match.b].id) == ("humaneval/7", "mine/long")
    assert match.score > 0.9


# ── decisions and files ───────────────────────────────────────────────────────────────────────────


def copy(problem, name, split="train"):
    return replace(problem, id=name, split=split)


def test_evaluation_problems_stay_and_of_training_duplicates_the_first():
    first, second = ORIGINALS[0], ORIGINALS[1]
    documents = [
        *map(document, ORIGINALS),
        document(copy(first, "humaneval/0", "test")),
        document(copy(first, "humaneval/1", "test")),
        document(copy(second, "mine/again")),
    ]
    decision = decide(documents)
    removed = {one.id: one for one in decision.removed}
    assert set(removed) == {first.id, "mine/again"}
    assert removed[first.id].other_role == "test"
    assert removed["mine/again"].other == second.id
    assert len(decision.kept) == len(ORIGINALS) - 1
    assert decision.between_evaluations == (("humaneval/0", "humaneval/1", "exact"),)


@pytest.fixture
def sets(tmp_path):
    training = [*ORIGINALS, copy(ORIGINALS[0], "mine/again"), copy(PLANTED, "mine/leak")]
    write_problems(tmp_path / "mine.jsonl", training)
    write_problems(tmp_path / "held.jsonl", [copy(PLANTED, "held/1", "test")])
    return tmp_path


def test_files_say_what_was_done(sets):
    against = [f"held={sets / 'held.jsonl'}", "codecontests_valid"]
    governed = govern([str(sets / "mine.jsonl")], against=against, out=sets / "out", folder=sets)
    assert len(governed.decision.removed) == 2
    kept = read_problems(sets / "out" / "problems.jsonl")
    assert kept == tuple(ORIGINALS)
    manifest = json.loads((sets / "out" / "manifest.json").read_text())
    assert manifest["kept"] == 60
    assert manifest["removed_by"] == {"validation:exact": 1, "train:exact": 1}
    assert list(manifest["not_checked"]) == ["codecontests_valid"]
    assert set(manifest["files"]) == {"problems.jsonl", "removed.jsonl"}
    assert manifest["training"][0]["sha256"]
    report = (sets / "out" / "report.md").read_text()
    assert "Not checked" in report
    assert "`mine/leak` repeats `held/1`" in report


def test_the_command(sets, capsys):
    command = [
        "data",
        "dedup",
        str(sets / "mine.jsonl"),
        "--against",
        f"held={sets / 'held.jsonl'}",
    ]
    assert cli.main([*command, "--out", str(sets / "out"), "--json"]) == 0
    line = json.loads(capsys.readouterr().out)
    assert (line["kept"], line["removed"], line["not_checked"]) == (60, 2, [])
    command = ["data", "dedup", "nothing_known", "--out", str(sets / "out")]
    assert cli.main(command) == 2


def test_what_is_test_only_cannot_be_made_a_training_set(sets):
    write_problems(sets / "he.jsonl", [copy(PLANTED, "humaneval/1", "train")])
    with pytest.raises(ConfigError, match="nothing there may train"):
        govern([f"x={sets / 'he.jsonl'}"], against=[], out=sets / "out")


@pytest.mark.slow
def test_a_small_bench_finds_what_was_planted():
    result = bench(n_training=700, n_evaluation=80, n_planted=10)
    assert set(result["recall"]) == {*KINDS, "all"}
    for kind in ("exact", "signs", "renamed", "rearranged", "paraphrased 100% +tests"):
        assert result["recall"][kind]["share"] == 1.0, kind
    assert result["precision"]["all"]["share"] >= 0.9
    assert result["recall"]["paraphrased 100%"]["share"] < 0.5, "words alone cannot show these"


# ── rates ─────────────────────────────────────────────────────────────────────────────────────────


def test_wilson_intervals():
    low, high = Rate(hits=5, total=10).interval
    assert (low, high) == (pytest.approx(0.2366, abs=1e-4), pytest.approx(0.7634, abs=1e-4))
    assert Rate(hits=0, total=10).interval == (0.0, pytest.approx(0.2775, abs=1e-4))
    assert Rate(hits=10, total=10).interval[1] == 1.0
    assert NONE.interval == (0.0, 1.0)
    assert NONE.share is None
    assert str(NONE) == "none"
