"""Task folders: read by Harbor's rules, in all layouts and from Parquet files, and written."""

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
from coding_model_project.harbor.evaluation.benchmarks import benchmarks
from coding_model_project.harbor.evaluation.scores import task_table
from coding_model_project.harbor.failures import InvalidTask, MissingVariable
from coding_model_project.harbor.format import task_config, tasks
from coding_model_project.harbor.format.task import (
    Task,
    check_env,
    load_task,
    passed_variables,
    resolve_env,
    withheld,
    write_task,
)
from coding_model_project.harbor.format.task_config import NetworkMode, parse_config, toml
from coding_model_project.harbor.format.tasks import Refused, read_tasks
from coding_model_project.harbor.outcome import read_trials
from tests.bench import trials
from tests.tables import tables
from tests.unit.harbor.folders import SIMPLE, folder

CASES = tables("harbor")

STEPS = '[[steps]]\nname = "a"\n[[steps]]\nname = "b"\n'


def test_an_empty_task_toml_has_every_default(tmp_path):
    task = load_task(folder(tmp_path / "mine"))
    step = task.steps[0]
    assert (task.name, task.instruction, task.has_steps) == ("mine", "Do it.\n", False)
    assert (step.verifier.timeout_sec, step.agent.timeout_sec) == (600.0, None)
    assert step.agent.network_mode is NetworkMode.public
    assert step.tests == (task.path / "tests",)
    assert task.warnings == ()


@pytest.mark.parametrize(("toml", "named"), CASES["bad value"])
def test_a_bad_value_is_refused_by_its_key(tmp_path, toml, named):
    with pytest.raises(InvalidTask) as refusal:
        load_task(folder(tmp_path / "bad", toml))
    assert named in str(refusal.value)
    assert "bad: task.toml: " in str(refusal.value) or named == "environment.os"


@pytest.mark.parametrize(("changes", "named"), CASES["folder lacks"])
def test_a_folder_that_lacks_something_is_refused(tmp_path, changes, named):
    with pytest.raises(InvalidTask, match=named):
        load_task(folder(tmp_path / "task", **changes))


@pytest.mark.parametrize("name", ["tests/a", "solution/a", "environment/a", "instruction.md"])
def test_a_link_out_of_the_task_is_refused(tmp_path, name):
    path = folder(tmp_path / "task")
    (path / "solution").mkdir()
    (path / name).unlink(missing_ok=True)
    (path / name).symlink_to("/etc/hostname")
    with pytest.raises(InvalidTask, match=f"{name} is a link out of the task"):
        load_task(path)


def test_a_link_may_lead_elsewhere_in_the_task_but_not_to_itself(tmp_path):
    path = folder(tmp_path / "task", **{"tests__.harborignore": "loop\n"})
    (path / "environment" / "data").mkdir()
    (path / "environment" / "again").symlink_to("data")
    (path / "tests" / "loop").symlink_to("loop")
    load_task(path)
    (path / "environment" / "data" / "up").symlink_to("..")
    load_task(path)
    (path / "environment" / "loop").symlink_to("loop")
    with pytest.raises(InvalidTask, match=r"environment/loop is a link out of the task"):
        load_task(path)


@pytest.mark.parametrize("name", ["instruction.md", "environment/data.bin"])
def test_a_sparse_file_is_not_read(tmp_path, name):
    path = folder(tmp_path / "task")
    with (path / name).open("ab") as file:
        file.truncate(1 << 40)
    with pytest.raises(InvalidTask, match=f"{name}.* more than"):
        load_task(path)


def test_unknown_keys_are_named_and_deprecated_ones_still_count(tmp_path):
    toml = (
        'version = "1.0"\nflavour = 1\n[environment]\nmemory = "1.5G"\nallow_internet = false\n'
        '[[steps]]\nname = "a"\n[steps.verifier]\nzeal = 3\n'
    )
    task = load_task(folder(tmp_path / "old", toml, steps__a__instruction_md="x"))
    assert task.config.environment.memory_mb == 1536
    assert task.steps[0].verifier.network_mode is NetworkMode.no_network
    assert any("memory" in said for said in task.warnings)
    assert any("flavour, steps.0.verifier.zeal" in said for said in task.warnings)


def test_steps_take_from_the_task_what_they_leave_open(tmp_path):
    toml = (
        'artifacts = ["/x"]\n[agent]\ntimeout_sec = 9\nuser = "me"\n'
        '[verifier]\ntimeout_sec = 7\nenv = {A = "task", B = "task"}\n'
        '[[steps]]\nname = "a"\nartifacts = ["/y"]\n[steps.verifier.env]\nA = "step"\n'
    )
    changes = {"steps__a__instruction_md": "# canary\n\nStep.", "steps__a__solution__solve_sh": ""}
    task = load_task(folder(tmp_path / "task", toml, **changes))
    (step,) = task.steps
    assert (step.name, step.instruction) == ("a", "Step.")
    assert (step.agent.timeout_sec, step.agent.user) == (9, "me")
    assert step.verifier.env == {"A": "step", "B": "task"}
    assert step.verifier.timeout_sec == 600.0  # Harbor does not inherit this one
    assert [artifact.source for artifact in step.artifacts] == ["/x", "/y"]
    assert step.solution == task.path / "steps" / "a" / "solution"


def test_a_verifier_with_an_image_of_its_own_brings_its_tests(tmp_path):
    toml = '[verifier]\nenvironment_mode = "separate"\n'
    changes = {"tests__Dockerfile": "FROM scratch\n", "tests__test_sh": None}
    (step,) = load_task(folder(tmp_path / "task", toml, **changes)).steps
    assert step.tests == ()
    assert step.verifier_environment is not None
    assert step.verifier_image == tmp_path / "task" / "tests"


def test_harborignore_counts_in_tests_and_below(tmp_path):
    names = ("tests__.harborignore", "tests__a", "tests__sub__a", "tests__sub__b")
    path = folder(tmp_path / "task", **dict.fromkeys(names, "a\n"))
    (path / "tests" / "sub" / ".harborignore").write_text("!a\n")
    (path / ".harborignore").write_text("*\n")
    task = load_task(path)
    kept = [entry[0] for entry in task.files.tree(path / "tests").entries]
    assert kept == ["sub", "sub/a", "sub/b", "test.sh"]


@pytest.mark.parametrize(
    "line", ["*a" * 40 + "b", "a/***/b", "/".join(["**/a"] * 9), "?*" * 9, "[b-a]*"]
)
def test_a_pattern_that_takes_long_to_match_is_refused(tmp_path, line):
    path = folder(tmp_path / "task", **{"tests__.harborignore": f"{line}\n"})
    (path / "tests" / ("a" * 200)).write_text("")
    with pytest.raises(InvalidTask, match=r"stars|pattern"):
        load_task(path)


def test_variables_of_the_host():
    env = {"A": "${X}", "B": "${Y:-else}", "C": "a ${X}", "D": "${Z:-}"}
    assert resolve_env(env, {"X": ""}) == {"A": "", "B": "else", "C": "a ${X}", "D": ""}
    with pytest.raises(MissingVariable, match=r"A asks for .* variable X; .*--pass-env X"):
        resolve_env(env, {})


def test_a_task_gets_only_variables_that_the_user_named(tmp_path, monkeypatch):
    monkeypatch.setenv("KEY", "secret")
    toml = '[solution.env]\nKEY = "${KEY}"\n[verifier.env]\nOTHER = "${KEY:-none}"\n'
    task = load_task(folder(tmp_path / "task", toml))
    check_env(task)
    (note,) = withheld(task)
    assert "gets its own default" in note and "--pass-env KEY" in note
    with pytest.raises(MissingVariable, match=r"task: \[solution.env\] KEY .* --pass-env KEY"):
        check_env(task, oracle=True)
    (refused,) = read_tasks([tmp_path / "task"], {}, oracle=True)
    assert isinstance(refused, Refused)
    environ = passed_variables(["KEY"], "--pass-env")
    (passed,) = read_tasks([tmp_path / "task"], environ, oracle=True)
    assert isinstance(passed, Task) and passed.environ == {"KEY": "secret"}
    assert withheld(passed) == ()
    assert withheld(task, {"KEY": "x"}) == ()
    with pytest.raises(ConfigError, match="--pass-env=NOT_SET: the variable is not set here"):
        passed_variables(["NOT_SET"], "--pass-env")


def test_variables_given_to_verifiers_count_as_set(tmp_path):
    folder(tmp_path / "task", '[verifier.env]\nKEY = "${UNSET_KEY}"\n')
    (refused,) = read_tasks([tmp_path / "task"], {})
    assert isinstance(refused, Refused)
    for env in ({"KEY": "x"}, {"UNSET_KEY": "x"}):
        (task,) = read_tasks([tmp_path / "task"], {}, verifier_env=env)
        assert isinstance(task, Task)


def test_a_declared_range_must_be_one(tmp_path):
    good = load_task(folder(tmp_path / "a", "[metadata]\nreward_range = [0, 1.2]"))
    odd = load_task(folder(tmp_path / "b", '[metadata]\nreward_range = "small"'))
    assert (good.reward_range, good.warnings) == ((0.0, 1.2), ())
    assert odd.reward_range is None
    assert "metadata.reward_range" in odd.warnings[0]


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
        trials.write_task(tmp_path / uuid / name)
    assert main(["harbor", "grade", str(tmp_path), "--json", "--out", str(tmp_path / "job")]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["task"] for line in lines] == ["one", f"{UUIDS[1]}/twice", "third/twice"]
    found = read_trials(tmp_path / "job")
    assert len({trial.task_key for trial in found}) == 3
    assert {trial.trial_name.partition("__")[0] for trial in found} == {"one", "twice"}
    table = task_table(found)
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


def test_tasks_in_a_parquet_file_are_read(tmp_path):
    packed = {}
    for name in "ab":
        made = folder(tmp_path / "tasks" / name, instruction_md=f"Do {name}.\n")
        (made / "tests" / "test.sh").chmod(0o755)
        (made / "tests" / "link").symlink_to("test.sh")
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz") as archive:
            archive.add(made, arcname=".")
        packed[name] = content.getvalue()
    file = parquet(tmp_path / "tasks.parquet", **packed)
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
