"""Where a set's rows are found, and which split they are of: files, folders, the hub, URLs."""

import gzip
import json

import pyarrow as pa
import pytest

from coding_model_project.data.loaders import LOADERS, find, load, table
from coding_model_project.data.problems import write_problems
from coding_model_project.errors import ConfigError, DataError
from coding_model_project.storage.fetching import on_disk
from coding_model_project.types import Problem, Stdin, Test
from tests.fakes import stdin_problem
from tests.tables import tables
from tests.unit.data.rows import published as rows
from tests.unit.data.test_loaders import written

CASES = tables("places")


@pytest.mark.parametrize(("set_name", "file", "split", "is_split"), CASES["splits"])
def test_the_split_of_a_file_is_in_its_name_or_given(tmp_path, set_name, file, split, is_split):
    known = {"codecontests": rows.CODECONTESTS, "acecode": ACECODE}
    path = written(tmp_path, file, known.get(set_name, ACECODE))
    given = tmp_path / "data" if file.startswith("data/") else path
    columns = {"statement": "question", "tests": "test_cases"} if set_name == "mine" else None
    (problem,) = load(set_name, path=given, split=split, columns=columns).problems
    assert problem.split == is_split


def test_each_file_of_a_folder_has_the_split_of_its_name(tmp_path):
    for file in ("train-0.jsonl", "train-1.jsonl", "test-0.jsonl"):
        written(tmp_path, f"folder/{file}", rows.GSM8K)
    found = load("gsm8k", path=tmp_path / "folder").problems
    assert [one.id for one in found] == ["gsm8k/test/0", "gsm8k/train/0", "gsm8k/train/1"]
    assert len(load("gsm8k_train", path=tmp_path / "folder").problems) == 2


def test_a_split_that_a_set_lacks_is_refused_with_those_that_it_has(tmp_path):
    path = written(tmp_path, "mine_test.jsonl", rows.GSM8K)
    for name, split in (("gsm8k", "validation"), ("mbpp_reg", "train"), ("mbpp_train", "test")):
        with pytest.raises(ConfigError, match=rf"split={split} \(--split\): {name} has only "):
            load(name, data_dir=tmp_path, split=split)
    with pytest.raises(ConfigError, match=r"split=train \(--split\): gsm8k has only test"):
        load("gsm8k", path=path, split="train")


ACECODE = {
    "id": "a1",
    "question": "Define f(x), which adds 1.",
    "test_cases": ["assert f(1) == 2"],
    "source": "oss",
}


def test_our_own_schema_by_any_name(tmp_path):
    problem = Problem(
        id="mine/1", split="train", statement="?", tests=(Test(input=Stdin("1"), expected="1"),)
    )
    write_problems(tmp_path / "p.jsonl", [problem])
    assert load("mine", path=tmp_path / "p.jsonl").problems == (problem,)
    assert load("humaneval", path=tmp_path / "p.jsonl").problems == (problem,)
    packed = tmp_path / "p.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "p.jsonl").read_bytes()))
    assert load("mine", path=packed).problems == (problem,)


def test_by_the_publishers_file_names(tmp_path, monkeypatch):
    written(tmp_path, "HumanEval.jsonl.gz", *[rows.HUMANEVAL] * 164)
    assert len(load("humaneval", data_dir=tmp_path).problems) == 164
    monkeypatch.setenv("CODING_DATA_DIR", str(tmp_path))
    loaded = load("humaneval")
    assert loaded.origin == str(tmp_path / "HumanEval.jsonl.gz")
    written(tmp_path, "code_contests/data/valid-00000-of-00001.parquet", *[rows.CODECONTESTS] * 117)
    assert len(load("codecontests_valid").problems) == 117


def test_a_copy_that_is_not_whole_is_refused_by_name_and_noted_by_path(tmp_path):
    path = written(tmp_path, "mbpp.jsonl", rows.MBPP)
    with pytest.raises(DataError, match=r"mbpp: 1 rows, 974 published.*mbpp=PATH"):
        load("mbpp", data_dir=tmp_path)
    loaded = load("mbpp", path=path)
    assert "974 published" in loaded.notes[0]


def test_a_release_needs_all_its_files(tmp_path):
    written(tmp_path, "test.jsonl", *[rows.LIVECODEBENCH_STDIN] * 400)
    with pytest.raises(ConfigError, match=r"test2\.jsonl"):
        load("livecodebench_v2", data_dir=tmp_path)
    assert len(load("livecodebench_v1", data_dir=tmp_path).problems) == 400
    assert len(load("livecodebench", data_dir=tmp_path).problems) == 400


def test_then_the_hub_at_its_pinned_commit(tmp_path, monkeypatch):
    asked = []
    path = written(tmp_path, "cache/rows.jsonl", *[rows.HUMANEVAL] * 164)

    def revision(published):
        asked.append((published.hub, published.revision))
        return "c0ffee"

    def files(published, part, revision):
        asked.append((part.config, part.split, revision))
        return [path]

    monkeypatch.setattr(table, "hub_revision", revision)
    monkeypatch.setattr(table, "hub_files", files)
    loaded = load("humaneval", data_dir=tmp_path)
    assert len(loaded.problems) == 164
    assert asked[0] == ("openai/openai_humaneval", "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544")
    assert asked[1] == ("openai_humaneval", "test", "c0ffee")
    assert loaded.origin == "openai/openai_humaneval@c0ffee"


def test_nowhere_says_where_was_looked(tmp_path, monkeypatch):
    def revision(published):
        raise ConfigError("the hub gave nothing")

    monkeypatch.setattr(table, "hub_revision", revision)
    with pytest.raises(ConfigError, match=r"mbpp\.jsonl.*=PATH.*the hub gave nothing"):
        load("mbpp", data_dir=tmp_path)


def test_unknown_names_are_told_the_known_ones(tmp_path):
    with pytest.raises(ConfigError, match="humaneval"):
        load("humanevil", data_dir=tmp_path)
    assert find("MBPP-train") == (LOADERS["mbpp"], "train")
    assert find("mbpp_reg") == (LOADERS["mbpp_reg"], None)


def test_a_url_is_copied_once_for_each_version(tmp_path, monkeypatch):
    import fsspec

    monkeypatch.setenv("CODING_DATA_CACHE", str(tmp_path / "cache"))
    files = fsspec.filesystem("memory")
    files.pipe("/bucket/rows.jsonl", json.dumps(rows.GSM8K).encode())
    loaded = load("gsm8k_test", path="memory://bucket/rows.jsonl")
    assert loaded.problems[0].split == "test"
    first = on_disk("memory://bucket/rows.jsonl")
    assert on_disk("memory://bucket/rows.jsonl") == first
    files.pipe("/bucket/rows.jsonl", b"longer than before, so another version" * 50)
    assert on_disk("memory://bucket/rows.jsonl") != first
    with pytest.raises(ConfigError, match="memory://bucket/none"):
        on_disk("memory://bucket/none.jsonl")
    with pytest.raises(ConfigError, match="nonsense://"):
        on_disk("nonsense://x/y")


def test_a_folder_saved_to_disk(tmp_path):
    folder = tmp_path / "saved" / "train"
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist([rows.GSM8K, rows.GSM8K])
    with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as stream:
        stream.write_table(table)
    (folder / "state.json").write_text(
        '{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}'
    )
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    assert len(load("gsm8k_train", path=tmp_path / "saved").problems) == 2
    assert len(load("gsm8k_train", path=folder).problems) == 2
    with pytest.raises(ConfigError, match="the folder has no"):
        load("gsm8k_train", path=written(tmp_path, "empty/x.txt").parent)


def test_a_split_in_the_name_selects_from_a_file_of_ours(tmp_path):
    splits = ("train", "test", "validation", "train")
    some = [stdin_problem(("1", "2"), id=f"a/{n}", split=one) for n, one in enumerate(splits)]
    write_problems(tmp_path / "problems.jsonl", some)
    for name, found in (("tinycode_test", [1]), ("tinycode_train", [0, 3]), ("tinycode", range(4))):
        loaded = load(name, path=tmp_path / "problems.jsonl")
        assert [problem.id for problem in loaded.problems] == [f"a/{n}" for n in found]
    write_problems(tmp_path / "train.jsonl", some[:1])
    with pytest.raises(ConfigError, match="tinycode_test has only train"):
        load("tinycode_test", path=tmp_path / "train.jsonl")
