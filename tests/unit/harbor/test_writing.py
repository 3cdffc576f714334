import io
import json
import tarfile
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coding_model_project.cli import main
from coding_model_project.contained import UnsafeNameError
from coding_model_project.data.loaders import load
from coding_model_project.errors import ConfigError
from coding_model_project.harbor.failures import InvalidTask
from coding_model_project.harbor.format import task_config, tasks
from coding_model_project.harbor.format.task import Task, write_task
from coding_model_project.harbor.format.task_config import parse_config, toml
from coding_model_project.harbor.format.tasks import Refused, read_tasks
from tests.unit.harbor.folders import SIMPLE, folder

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12)
SECONDS = st.floats(0, 1e6)
ENV = st.dictionaries(TEXT, TEXT, max_size=3)
PUBLIC_OR_NONE = st.sampled_from(
    [task_config.NetworkMode.public, task_config.NetworkMode.no_network]
)
METADATA = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
HEALTH = st.builds(
    task_config.Healthcheck, command=TEXT, interval_sec=SECONDS, retries=st.integers(0)
)
ENVIRONMENT = st.builds(
    task_config.EnvironmentConfig,
    docker_image=st.none() | TEXT,
    cpus=st.none() | st.integers(1, 64) | st.just(1.5),
    memory_mb=st.none() | st.integers(1, 10**6),
    network_mode=PUBLIC_OR_NONE,
    env=ENV,
    healthcheck=st.none() | HEALTH,
    workdir=st.none() | TEXT,
)
VERIFIER = st.builds(
    task_config.VerifierConfig,
    timeout_sec=SECONDS,
    env=ENV,
    user=st.none() | TEXT | st.integers(0, 65535),
    environment=st.none() | ENVIRONMENT,
    collect=st.lists(st.builds(task_config.Collect, command=TEXT), max_size=2).map(tuple),
)
ARTIFACTS = st.lists(
    st.builds(
        task_config.Artifact, source=st.sampled_from(["/a", "b"]), exclude=st.just(("*.pyc",))
    )
    | st.builds(task_config.Artifact, source=st.just("/c")),
    max_size=3,
).map(tuple)
STEP = st.builds(
    task_config.StepConfig,
    name=st.from_regex(r"[a-z]{3}[0-9]", fullmatch=True),
    verifier=VERIFIER,
    min_reward=st.none() | st.floats(0, 1) | st.dictionaries(TEXT, st.floats(0, 1), max_size=2),
    artifacts=ARTIFACTS,
)
CONFIG = st.builds(
    task_config.TaskConfig,
    task=st.none() | st.builds(task_config.Package, name=st.just("org/name"), description=TEXT),
    metadata=st.dictionaries(TEXT, METADATA, max_size=3),
    verifier=VERIFIER,
    agent=st.builds(task_config.AgentConfig, timeout_sec=st.none() | SECONDS),
    environment=ENVIRONMENT,
    multi_step_reward_strategy=st.none() | st.sampled_from(task_config.RewardStrategy),
    steps=st.none() | st.lists(STEP, max_size=2, unique_by=lambda step: step.name).map(tuple),
    artifacts=ARTIFACTS,
)


@settings(max_examples=50)
@given(CONFIG)
def test_a_configuration_is_read_as_it_was_written(given_config):
    assert parse_config(toml(given_config)) == (given_config, ())


def test_a_folder_is_read_as_it_was_written(tmp_path):
    files = {**SIMPLE, "solution/solve.sh": "echo '$X' \\\n", "tests/data.bin": b"\x00\xff\r\n"}
    given_config = task_config.TaskConfig(metadata={"a": [1, {"b": "ü\n"}]})
    task = write_task(tmp_path / "out" / "mine", given_config, files)
    assert (task.config, task.name, task.warnings) == (given_config, "mine", ())
    for name, content in files.items():
        expected = content.encode() if isinstance(content, str) else content
        assert (task.path / name).read_bytes() == expected
    assert (task.path / "solution" / "solve.sh").stat().st_mode & 0o111


def test_what_is_no_task_is_not_written(tmp_path):
    untested = {name: text for name, text in SIMPLE.items() if name != "tests/test.sh"}
    with pytest.raises(InvalidTask, match=r"tests/test\.sh is missing"):
        write_task(tmp_path / "bad", task_config.TaskConfig(), untested)
    with pytest.raises(UnsafeNameError, match=r"\.\./x"):
        write_task(tmp_path / "bad", task_config.TaskConfig(), {**SIMPLE, "../x": ""})
    assert list(tmp_path.iterdir()) == []
    write_task(tmp_path / "good", task_config.TaskConfig(), SIMPLE)
    with pytest.raises(ConfigError, match="exists"):
        write_task(tmp_path / "good", task_config.TaskConfig(), SIMPLE)


def test_bad_tasks_are_set_aside_and_the_rest_are_read(tmp_path):
    folder(tmp_path / "a", "a =")
    folder(tmp_path / "b")
    folder(tmp_path / "c", '[environment.env]\nK = "${NOT_SET}"')
    folder(tmp_path / ".hidden")
    read = list(read_tasks([tmp_path], {}))
    assert [one.path.name for one in read] == ["a", "b", "c"]
    assert [isinstance(one, Refused) for one in read] == [True, False, True]
    assert "NOT_SET" in read[2].reason
    assert [one.path.name for one in read_tasks([tmp_path / "b"])] == ["b"]
    with pytest.raises(ConfigError, match="nowhere: no such folder"):
        list(read_tasks([tmp_path / "nowhere"]))


# ── tasks in a Parquet file ───────────────────────────────────────────────────────────────────────


def parquet(file: Path, **tars: bytes) -> Path:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (path VARCHAR, task_binary BLOB)")
        for name, packed in tars.items():
            connection.execute("INSERT INTO t VALUES (?, ?)", [name.replace("__", "/"), packed])
        connection.table("t").write_parquet(str(file))
    return file


def tar(*members: tuple[str, str, str]) -> bytes:
    """Return a gzipped tar file of (name, kind, content or target)."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, kind, text in members:
            about = tarfile.TarInfo(name)
            if kind == "link":
                about.type, about.linkname = tarfile.SYMTYPE, text
            about.size = len(text) if kind == "file" else 0
            archive.addfile(about, io.BytesIO(text.encode()))
    return made.getvalue()


def test_tasks_go_into_a_parquet_file_and_come_back(tmp_path, capsys):
    for name in "ab":
        made = folder(tmp_path / "tasks" / name, instruction_md=f"Do {name}.\n")
        (made / "tests" / "test.sh").chmod(0o755)
        (made / "tests" / "link").symlink_to("test.sh")
    folder(tmp_path / "tasks" / "bad", "[task]\nname = 'no-org'\n")
    file = tmp_path / "tasks.parquet"
    assert main(["harbor", "pack", str(tmp_path / "tasks"), "--out", str(file)]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out) == {"out": str(file), "tasks": 2, "left_out": 1}
    assert "left out" in said.err and "no-org" in said.err
    for _ in range(2):  # unpacked on first use
        a, b = read_tasks([file], {})
        assert isinstance(a, Task) and isinstance(b, Task)
        assert (a.label, b.label, a.source) == ("a", "b", "tasks")
        assert b.instruction == "Do b.\n"
        assert (a.path / "tests" / "test.sh").stat().st_mode & 0o777 == 0o755
        assert (a.path / "tests" / "link").readlink() == Path("test.sh")
    assert len(list(tmp_path.iterdir())) == 3  # no partial folder is left
    problems = load("mine", path=file).problems
    assert [one.id for one in problems] == ["mine/a", "mine/b"]
    assert main(["harbor", "pack", str(tmp_path / "tasks"), "--out", str(file)]) == 2


def test_a_hostile_parquet_file_writes_nothing_outside(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "_MAX_TASK_BYTES", 1 << 20)
    good = folder(tmp_path / "good")
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(good, arcname=".")
    (tmp_path / "in").mkdir()
    file = parquet(
        tmp_path / "in" / "t.parquet",
        up=tar(("../../evil", "file", "x")),
        absolute=tar((f"{tmp_path}/evil", "file", "x")),
        link=tar(("out", "link", str(tmp_path)), ("task.toml", "file", "")),
        through=tar(("out", "link", ".."), ("out/evil", "file", "x")),
        bomb=tar(("big", "file", "0" * (2 << 20))),
        cut=tar(("task.toml", "file", "x"))[:-9],
        none=b"",
        **{"____..__..__evil": buffer.getvalue()},
    )
    said: list[str] = []
    read = list(read_tasks([file], {}, say=said.append))
    assert [type(one) for one in read].count(Task) == 1  # its name is a name here, and no path
    assert len(read) == 8 and len(said) == 7
    assert any("more than 1,048,576 bytes" in line for line in said)
    assert {one.name for one in tmp_path.iterdir()} == {"good", "in"}
    assert not [one for one in (tmp_path / "in").rglob("*") if one.is_symlink()]


def test_another_parquet_file_is_no_set_of_tasks(tmp_path):
    file = tmp_path / "x.parquet"
    with duckdb.connect() as connection:
        connection.sql("SELECT 1 AS n").write_parquet(str(file))
    with pytest.raises(ConfigError, match="columns path and task_binary"):
        list(read_tasks([file], {}))
    assert list(tmp_path.iterdir()) == [file]
