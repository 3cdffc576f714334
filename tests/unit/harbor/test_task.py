import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.harbor.failures import InvalidTask, MissingVariable
from coding_model_project.harbor.format.task import (
    Task,
    check_env,
    load_task,
    passed_variables,
    resolve_env,
    withheld,
)
from coding_model_project.harbor.format.task_config import NetworkMode
from coding_model_project.harbor.format.tasks import Refused, read_tasks
from tests.tables import tables
from tests.unit.harbor.folders import folder

CASES = tables("harbor")

STEPS = '[[steps]]\nname = "a"\n[[steps]]\nname = "b"\n'


def test_an_empty_task_toml_has_every_default(tmp_path):
    task = load_task(folder(tmp_path / "mine"))
    step = task.steps[0]
    assert (task.name, task.instruction, task.has_steps) == ("mine", "Do it.\n", False)
    assert (step.verifier.timeout_sec, step.agent.timeout_sec) == (600.0, None)
    assert step.agent.network_mode is NetworkMode.public
    assert step.tests == (task.path / "tests",)
    assert step.test_script == task.path / "tests" / "test.sh"
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


def test_a_link_may_lead_elsewhere_in_the_task_but_not_around(tmp_path):
    path = folder(tmp_path / "task", **{"tests__.harborignore": "loop\n"})
    (path / "environment" / "data").mkdir()
    (path / "environment" / "again").symlink_to("data")
    (path / "tests" / "loop").symlink_to("loop")
    load_task(path)
    for name, target in (("data/up", ".."), ("loop", "loop")):
        (path / "environment" / name).symlink_to(target)
        with pytest.raises(InvalidTask, match=r"a link to a folder above|[Ll]oop"):
            load_task(path)
        (path / "environment" / name).unlink()


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
    assert step.test_script == task.path / "tests" / "test.sh"
    assert step.solution == task.path / "steps" / "a" / "solution"


def test_a_verifier_with_an_image_of_its_own_brings_its_tests(tmp_path):
    toml = '[verifier]\nenvironment_mode = "separate"\n'
    changes = {"tests__Dockerfile": "FROM scratch\n", "tests__test_sh": None}
    (step,) = load_task(folder(tmp_path / "task", toml, **changes)).steps
    assert (step.tests, step.test_script) == ((), None)
    assert step.verifier_environment is not None
    assert step.verifier_image == tmp_path / "task" / "tests"


def test_harborignore_counts_in_tests_and_below(tmp_path):
    names = ("tests__.harborignore", "tests__a", "tests__sub__a", "tests__sub__b")
    path = folder(tmp_path / "task", **dict.fromkeys(names, "a\n"))
    (path / "tests" / "sub" / ".harborignore").write_text("!a\n")
    (path / ".harborignore").write_text("*\n")
    task = load_task(path)
    kept = [str(one) for one in task.files.selected(path / "tests")]
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
    given = passed_variables(["KEY"], "--pass-env")
    (passed,) = read_tasks([tmp_path / "task"], given, oracle=True)
    assert isinstance(passed, Task) and passed.environ == {"KEY": "secret"}
    assert withheld(passed) == ()
    assert withheld(task, {"KEY": "x"}) == ()
    with pytest.raises(ConfigError, match="--pass-env=NOT_SET: the variable is not set here"):
        passed_variables(["NOT_SET"], "--pass-env")


def test_variables_given_to_verifiers_count_as_set(tmp_path):
    folder(tmp_path / "task", '[verifier.env]\nKEY = "${UNSET_KEY}"\n')
    (refused,) = read_tasks([tmp_path / "task"], {})
    assert isinstance(refused, Refused)
    for given in ({"KEY": "x"}, {"UNSET_KEY": "x"}):
        (task,) = read_tasks([tmp_path / "task"], {}, verifier_env=given)
        assert isinstance(task, Task)


def test_a_declared_range_must_be_one(tmp_path):
    good = load_task(folder(tmp_path / "a", "[metadata]\nreward_range = [0, 1.2]"))
    odd = load_task(folder(tmp_path / "b", '[metadata]\nreward_range = "small"'))
    assert (good.reward_range, good.warnings) == ((0.0, 1.2), ())
    assert odd.reward_range is None
    assert "metadata.reward_range" in odd.warnings[0]
