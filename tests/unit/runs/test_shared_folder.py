"""A node that lacks the run's folder, its files or its packages is named before anything is trained."""

import pickle
import time

import pytest

from coding_model_project.errors import ClusterError, ConfigError, StorageError
from coding_model_project.runs.shared_folder import Answer, answer, conclude, question
from tests.hosts import host, needs_namespaces
from tests.tables import tables
from tests.text_cases import sources

CASES = tables("runs")

SOURCES = sources(__file__)

pytestmark = [pytest.mark.sandbox, needs_namespaces]

NODE = SOURCES["node"]


def ask(tmp_path, nodes, *, patience_s=0):
    """Ask hosts; each is set up by its lines of Python, before and after it looks."""
    run_dir, problems = tmp_path / "run", tmp_path / "data" / "problems.jsonl"
    for folder in (run_dir, problems.parent):
        folder.mkdir()
    problems.write_text("{}")
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    named = {f"coding.problems={problems}": problems, f"model.path={model}": model}
    with question(run_dir, named) as asked:
        (tmp_path / "question").write_bytes(pickle.dumps(asked))
        answers = {}
        for name, (before, after) in nodes.items():
            code = NODE.replace("BEFORE", before).replace("AFTER", after)
            with host(name, code, tmp_path) as process:
                assert process.communicate()[1] == ""
            answers[name] = pickle.loads((tmp_path / f"answer-{name}").read_bytes())
        try:
            conclude(asked, answers, patience_s=patience_s)
        finally:
            assert [path.name for path in run_dir.iterdir()] == [f".nodes-{asked.token}"]


def refusal(tmp_path, nodes):
    with pytest.raises(ConfigError) as caught:
        ask(tmp_path, nodes)
    assert not list((tmp_path / "run").iterdir())
    return str(caught.value)


def test_nodes_that_share_the_folder_are_fine(tmp_path):
    ask(tmp_path, {"node-a": ("", ""), "node-b": ("", "")})


def test_each_node_without_the_folder_is_named(tmp_path):
    private = ('mount(path / "run")', "")
    said = refusal(tmp_path, {"node-a": ("", ""), "node-b": private, "node-c": private})
    lacks = f"coding.run_dir={tmp_path}/run is not the folder"
    assert f"node-b: {lacks}" in said and f"node-c: {lacks}" in said and "node-a" not in said
    assert "mount it there, or set the key" in said


@pytest.mark.parametrize(("before", "says"), CASES["nodes"])
def test_what_a_node_has_otherwise_is_named(tmp_path, before, says):
    assert says in refusal(tmp_path, {"node-b": (before, "")})


def test_what_a_node_writes_must_be_seen_by_the_driver(tmp_path):
    lost = 'next((path / "run").glob(".nodes-*/node-b")).unlink()'
    said = refusal(tmp_path, {"node-b": ("", lost)})
    assert f"node node-b: coding.run_dir={tmp_path}/run: what it writes is not seen here" in said


def test_nodes_whose_files_are_not_seen_are_waited_for_together(tmp_path):
    with question(tmp_path, {}) as asked:
        fine = Answer(host="x", problems=(), full_disk="")
        began = time.monotonic()
        with pytest.raises(ConfigError, match="what it writes is not seen here"):
            conclude(asked, {str(n): fine for n in range(60)}, patience_s=0.6)
    assert time.monotonic() - began < 20  # each of them for 0.6 s would be 36


def test_a_full_disk_for_temporary_files_is_named(tmp_path):
    full = (
        'mount(path / "data", "-o", "size=1m", "-v")\n'
        'tempfile.tempdir = str(path / "data")\n'
        '(path / "data" / "problems.jsonl").write_text("{}")'
    )
    with pytest.raises(StorageError) as caught:
        ask(tmp_path, {"node-b": (full, "")})
    assert f"node node-b; the disk of {tmp_path}/data is full (" in str(caught.value)


def test_a_silent_node_is_a_cluster_error_that_names_it(tmp_path):
    with question(tmp_path, {}) as asked:
        mine = answer(asked, "here")
        assert isinstance(mine, Answer) and not mine.problems
        answers = {"here": mine, "b": ClusterError("node b did not answer within 300 s")}
        with pytest.raises(ClusterError, match=r"^node b did not answer .*`ray stop`"):
            conclude(asked, answers)
