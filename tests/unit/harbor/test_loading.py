"""Supported layouts of task folders."""

import json
from pathlib import Path

import pytest

from coding_model_project.cli import main
from coding_model_project.data.loaders import load
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.evaluation.benchmarks import benchmarks
from coding_model_project.harbor.evaluation.scores import task_table
from coding_model_project.harbor.format.task import Task
from coding_model_project.harbor.format.tasks import Refused, read_tasks
from coding_model_project.harbor.outcome import read_trials
from tests.bench.trials import write_task
from tests.tables import tables
from tests.unit.harbor.folders import folder

CASES = tables("harbor")

UUIDS = ("4ZXB2mPqRsT8uVwY3hKjLn", "9aFgHkLmNpQrStUvWxYz12")
DIGESTS = ("a" * 64, "b" * 64)


def test_the_cache_of_harbor_is_read_with_the_tasks_own_names(tmp_path):
    cache = tmp_path / "tasks"
    folder(cache / UUIDS[1] / "hello-world")
    folder(cache / UUIDS[0] / "sort-files")
    folder(cache / "packages" / "org" / "count-words" / DIGESTS[0])
    read = list(read_tasks([cache]))
    assert [one.label for one in read] == ["count-words", "hello-world", "sort-files"]
    assert {one.source for one in read if isinstance(one, Task)} == {"tasks"}


def test_tasks_that_share_a_name_are_told_apart(tmp_path):
    for uuid in UUIDS:
        folder(tmp_path / uuid / "hello-world")
    for digest in DIGESTS:
        folder(tmp_path / "packages" / "org" / "other" / digest)
    labels = [one.label for one in read_tasks([tmp_path])]
    assert len(set(labels)) == 4
    assert labels[:2] == [f"{uuid}/hello-world" for uuid in UUIDS]
    assert load("mine", path=tmp_path / UUIDS[0]).problems[0].id == "mine/hello-world"
    loaded = load("mine", path=tmp_path)
    assert len({problem.id for problem in loaded.problems}) == 4
    assert any("the same name as another task" in note for note in loaded.notes)


def test_a_broken_task_beside_nested_ones_is_named(tmp_path):
    folder(tmp_path / "a", "a =")
    folder(tmp_path / UUIDS[0] / "good")
    (tmp_path / "empty" / "environment").mkdir(parents=True)
    folder(tmp_path / "bad" / "environment" / "no-task")
    read = {one.label: isinstance(one, Refused) for one in read_tasks([tmp_path])}
    assert read == {"a": True, "bad": True, "empty": True, "good": False}


@pytest.mark.sandbox
def test_grades_have_the_tasks_own_names(tmp_path, capsys):
    for uuid, name in zip((*UUIDS, "third"), ("one", "twice", "twice"), strict=True):
        write_task(tmp_path / uuid / name)
    assert main(["harbor", "grade", str(tmp_path), "--json", "--out", str(tmp_path / "job")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["task"] for line in lines] == ["one", f"{UUIDS[1]}/twice", "third/twice"]
    trials = read_trials(tmp_path / "job")
    assert len({trial.task_key for trial in trials}) == 3
    assert {trial.trial_name.partition("__")[0] for trial in trials} == {"one", "twice"}
    table = task_table(trials)
    assert f"twice ({UUIDS[1]})" in table and "3 tasks" in table


def sets(root: Path) -> Path:
    folder(root / "terminal-bench-2.0" / UUIDS[0] / "one")
    folder(root / "swe_bench" / "two")
    folder(root / "swe_bench_pro" / "three")
    return root


def test_benchmarks_are_found_by_name_and_by_path(tmp_path):
    data = sets(tmp_path / "data")
    found = benchmarks(["terminal_bench,swe-bench", f"mine={data}/swe_bench_pro"], data)
    assert {name: folder.name for name, folder in found.items()} == {
        "terminal_bench": "terminal-bench-2.0",
        "swe-bench": "swe_bench",
        "mine": "swe_bench_pro",
    }


@pytest.mark.parametrize(("words", "said"), CASES["benchmarks cannot"])
def test_benchmarks_that_cannot_be_used_are_one_line(tmp_path, words, said):
    data = sets(tmp_path / "data")
    folder(data / "old-bench-1.0" / "x")
    folder(data / "old-bench-2" / "x")
    with pytest.raises(ConfigError, match=said) as raised:
        benchmarks([word.replace("DATA", str(data)) for word in words], data)
    assert "\n" not in str(raised.value)
