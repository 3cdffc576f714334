"""Environments: what all promise, the docs' example of one, wrong names, a limit per node, and `auto`."""

import asyncio
import importlib
import os
import subprocess
import sys

import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.grading.base import AUTO, TaskEnvironment
from coding_model_project.harbor.agents import Oracle, Script
from coding_model_project.harbor.environment.base import (
    Environment,
    EnvironmentFailed,
    ImageError,
    Killed,
    prepared,
)
from coding_model_project.harbor.environment.containers import ContainerEnvironments, NodeLimit
from coding_model_project.harbor.environment.factory import (
    check_supported,
    environments_of,
    lacking_engine,
)
from coding_model_project.harbor.environment.foreign import FactoryEnvironments
from coding_model_project.harbor.environment.tree import of_bytes
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.format.task_config import EnvironmentConfig
from coding_model_project.harbor.harbor_config import Integrity
from coding_model_project.harbor.interface import HarborSandbox
from coding_model_project.harbor.rooms.rooms import EmbeddedEnvironments
from coding_model_project.harbor.trial import Trials
from tests import docs
from tests.tables import tables
from tests.unit.harbor.folders import program, solvable
from tests.unit.harbor.places import (
    engine,
    listed,
    need_rooms,
    run_in_containers,
    run_in_environments,
    write_image,
)

CASES = tables("harbor")

EXAMPLE = "my_environments"

# These tests list the machine's containers, and remove those of killed processes.
pytestmark = pytest.mark.xdist_group("containers")


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Save the example as a reader would."""
    (text,) = (
        block.text
        for block in docs.blocks(docs.ROOT / "docs" / "harbor-environments.md")
        if block.text.startswith(f"# {EXAMPLE}.py")
    )
    (tmp_path / f"{EXAMPLE}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    yield f"{EXAMPLE}:Podman"
    sys.modules.pop(EXAMPLE, None)


@pytest.mark.parametrize(("name", "says"), CASES["environments"])
def test_a_name_that_leads_nowhere_is_one_line(name, says):
    with pytest.raises(ConfigError, match=says):
        environments_of(TaskEnvironment(name=name))


def test_a_limit_of_a_node_holds_over_processes_and_ends_with_them(tmp_path):
    limit = NodeLimit(2, tmp_path)
    mine = limit.free()
    program = (
        "import sys, time; from pathlib import Path\n"
        "from coding_model_project.harbor.environment.containers import NodeLimit\n"
        f"place = NodeLimit(2, Path({str(tmp_path)!r})).free()\n"
        "print(place is not None, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"True\n"
        assert limit.free() is None
        other.kill()
        other.wait()
    assert asyncio.run(asyncio.wait_for(limit.take(), 10)) is not None
    assert limit.free() is None
    os.close(mine)
    assert limit.free() is not None


class Borrowed(Environment):
    """The five methods of an environment, in a room, without the room's own ones."""

    workdir = "/app"

    def __init__(self, room):
        self._room, self.env = room, room.env
        self.execute, self.read_file = room.execute, room.read_file

    async def execute(self, command, **settings):
        raise AssertionError("replaced")

    async def read_file(self, path, max_bytes=0):
        raise AssertionError("replaced")

    async def write_file(self, path, content, mode=0o644):
        await self._room.write_file(self.absolute(path), content, mode)

    async def heartbeat(self):
        await self._room.heartbeat()

    async def cleanup(self):
        await self._room.cleanup()


async def in_a_sandbox(room, folder):
    """Return an environment that a sandbox factory made, of the room."""

    async def factory(env_dir, timeout):
        assert env_dir == folder and timeout > 600
        return HarborSandbox(room)

    return await FactoryEnvironments(factory).create(folder, EnvironmentConfig(), {"A": "b"})


# ── what every environment promises ───────────────────────────────────────────────────────────────


@pytest.fixture(params=["a room", "a container", "five methods", "six methods"])
def inside(request, tmp_path):
    """Return the result of `await use(environment)`, in an environment of each kind."""
    kind = request.param

    def run(use):
        async def body(environments):
            made = await environments.create(tmp_path, EnvironmentConfig(), {"A": "b"})
            if kind == "five methods":
                made = await prepared(Borrowed(made))
            if kind == "six methods":
                made = await in_a_sandbox(made, tmp_path)
            try:
                return await use(made)
            finally:
                await made.cleanup()

        if kind == "a container":
            write_image(tmp_path)
            return run_in_containers(body)
        (tmp_path / "Dockerfile").write_text("FROM debian\nWORKDIR /app\n")
        return run_in_environments(body)

    return run


@pytest.mark.sandbox
def test_a_verifier_finds_files_and_no_process_of_the_agent(inside):
    forges = """(while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.05; done) < /dev/null &
        mkdir -p /tests; touch /tests/helper.py /conftest.py /app/x/kept; setsid sleep 600 &"""

    async def use(made):
        await made.write_tree("x", of_bytes("y/z", b"\xff", 0o755))
        await made.run_command(forges)
        await made.begin_verifier()
        await made.write_tree("/tests", of_bytes("test.sh", b"echo $A\n").executable("test.sh"))
        found = await made.run_command(
            "/tests/test.sh; pwd; sleep 0.2; ls -A /tests /logs/verifier /app/x; [ ! -e /conftest.py ]"
        )
        ended = await made.run_command(f"{LEFT} | grep -c '^sleep.600'")
        program, tree = await made.read_tree("x/y/z"), await made.read_tree("x", only=["y", "no"])
        with pytest.raises(FileNotFoundError):
            await made.read_tree("none")
        with pytest.raises(OSError, match="bytes"):
            await made.read_tree("/tests", max_bytes=1)
        return found, ended.stdout, program, tree, await made.read_tree("/logs/verifier")

    found, left, program, tree, empty = inside(use)
    assert found.stdout == "b\n/app\n/app/x:\nkept\ny\n\n/logs/verifier:\n\n/tests:\ntest.sh\n"
    assert left == "0\n"
    assert program == of_bytes("", b"\xff", 0o755) and tree.file("y/z") == b"\xff"
    assert [name for name, *_ in tree.entries] == ["y", "y/z"] and empty.entries == ()


LEFT = "for p in /proc/[0-9]*; do cat $p/cmdline; echo; done 2>/dev/null"
"""Lists the commands that run."""


@pytest.mark.sandbox
def test_late_and_cancelled_commands_end_with_all_they_started_and_nothing_else(inside):
    daemons = "echo first; setsid sh -c 'trap \"\" TERM; sleep 600 & sleep 601' & sleep 602"

    async def use(made):
        await made.run_command("sleep 500 &")
        late = await made.run_command(daemons, timeout_s=3.0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(made.run_command("sleep 603"), 3.0)
        return late, (await made.run_command(LEFT)).stdout

    late, left = inside(use)
    assert late.timed_out and (late.exit_code, late.stdout) == (137, "first\n")
    assert "sleep\x00500" in left and "sleep\x0060" not in left


@pytest.mark.sandbox
def test_a_huge_log_is_cut_and_no_background_process_is_waited_for(inside):
    async def use(made):
        log = await made.run_command("echo first; head -c 300000000 /dev/zero; echo last; exit 3")
        null = await made.run_command("echo a\0b")
        return log, await made.run_command("sleep 60 & echo at once"), null

    log, held, null = inside(use)
    assert log.exit_code == 3 and log.stdout.startswith("first") and log.stdout.endswith("last\n")
    assert len(log.stdout) < 1.1 * (1 << 20) and "bytes left out" in log.stdout
    assert held.stdout == "at once\n"
    assert null.exit_code == 126 and "null byte" in null.stderr


@pytest.mark.sandbox
def test_the_example_runs_trials_by_five_methods(tmp_path, example):
    if engine() != "podman":
        pytest.skip("the example is for podman")
    task = solvable(tmp_path / "task", solve="echo 1 > answer")
    write_image(task / "environment")
    forges = "echo 0 > answer; (while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.1; done) &"

    async def use():
        environments = environments_of(TaskEnvironment(name=example))
        async with environments:
            trials = Trials(environments)
            solved = await trials.run(load_task(task), Oracle())
            forged = await trials.run(load_task(task), Script(forges))
            room = await environments.create(task / "environment", EnvironmentConfig(), {"A": "b"})
            await room.write_tree("/app/x", of_bytes("y/z", b"\xff", 0o755))
            tree = await room.read_tree("/app", only=["x", "none"])
            late = await room.run_command("echo $A; sleep 30", timeout_s=1.0)
            with pytest.raises(FileNotFoundError):
                await room.read_tree("/app/none")
            await room.cleanup()
            with pytest.raises(EnvironmentFailed):
                await room.heartbeat()
        return solved, forged, tree, late

    solved, forged, tree, late = asyncio.run(use())
    assert (solved.error, solved.rewards) == (None, {"reward": 1.0})
    assert forged.rewards == {"reward": 0.0} and forged.integrity is Integrity.in_process
    assert tree.file("x/y/z") == b"\xff" and late.killed is Killed.timeout


@pytest.mark.sandbox
def test_an_image_is_built_once_for_its_content_and_containers_are_gone_at_the_end(tmp_path):
    program = engine()
    write_image(tmp_path / "one")
    write_image(tmp_path / "same")

    async def body():
        async with ContainerEnvironments(program, at_once=3) as environments:
            for name in ("one", "one", "same"):
                room = await environments.create(tmp_path / name, EnvironmentConfig(), {})
                assert (await room.run_command("echo hi")).stdout == "hi\n"
                await room.cleanup()
            assert mine() == []
        return mine()

    def mine():
        return [name for name in listed(program) if f"-{os.getpid()}." in name]

    def images():
        command = [program, "images", "--format", "{{.Repository}}:{{.Tag}}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return {line for line in done.stdout.split() if "coding-harbor" in line}

    before = images()
    assert asyncio.run(body()) == []
    assert len(images() - before) <= 1


@pytest.mark.sandbox
def test_a_verifier_of_its_own_in_a_container_is_isolated(tmp_path):
    toml = 'artifacts = ["/app/answer"]\n[verifier]\nenvironment_mode = "separate"\n'
    task = solvable(tmp_path / "task", toml, "echo 0.5 > /app/answer")
    write_image(task / "environment")
    write_image(task / "tests", "COPY test.sh /tests/\n")

    async def use(environments):
        return await Trials(environments).run(load_task(task), Oracle())

    outcome = run_in_containers(use)
    assert (outcome.error, outcome.rewards) == (None, {"reward": 0.5})
    assert outcome.integrity is Integrity.isolated


STAGES = "FROM golang:1.24 AS made\nFROM debian\nCOPY --from=made /a /a\n"


@pytest.fixture
def no_engine(tmp_path, monkeypatch):
    (tmp_path / "none").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    lacking_engine.cache_clear()
    yield
    lacking_engine.cache_clear()


@pytest.fixture
def an_engine(tmp_path, monkeypatch):
    """A container engine that responds, and builds nothing."""
    made = program(
        tmp_path / "bin/podman", '[ "$1" = ps ] && exit 0; echo builds nothing >&2; exit 1'
    )
    monkeypatch.setenv("PATH", f"{made.parent}:{os.environ['PATH']}")
    lacking_engine.cache_clear()
    yield
    lacking_engine.cache_clear()


def made(path, dockerfile):
    check = "#!/bin/bash\necho 1 > /logs/verifier/reward.txt\n"
    return load_task(solvable(path, environment__Dockerfile=dockerfile, tests__test_sh=check))


def outcomes(*tasks):
    async def use():
        async with environments_of(TaskEnvironment()) as environments:
            trials = Trials(environments)
            return [await trials.run(task, Oracle()) for task in tasks]

    need_rooms()
    return asyncio.run(use())


@pytest.mark.sandbox
def test_without_an_engine_simple_tasks_run_and_others_say_how_to_get_one(tmp_path, no_engine):
    simple = made(tmp_path / "simple", "FROM debian\nWORKDIR /app\n")
    fails = made(tmp_path / "fails", "FROM debian\nRUN apt-get install -y jq\n")
    stages = made(tmp_path / "stages", STAGES)
    first, *others = outcomes(simple, fails, stages, fails)
    assert (first.error, first.rewards) == (None, {"reward": 1.0})
    places = ("Dockerfile:2: RUN", "Dockerfile:1", "Dockerfile:2")
    for one, where in zip(others, places, strict=True):
        assert one.exception == "SandboxBuildFailedError" and one.rewards is None
        assert where in str(one.error) and "apt-get install podman" in str(one.error)


@pytest.mark.sandbox
def test_with_an_engine_it_builds_what_rooms_cannot_and_what_fetches_its_tools(tmp_path, an_engine):
    """Rooms have no network, and so no verdict for a verifier that needs one."""
    fails = made(tmp_path / "fails", "FROM debian\nRUN false\n")
    task = made(tmp_path / "t", "FROM debian\n")
    script = task.path / "tests" / "test.sh"
    script.write_text(f"#!/bin/bash\n# curl x\necho uvx; true || curl -s x\n{script.read_text()}")
    for ended in outcomes(fails, task):
        assert ended.exception == "SandboxBuildFailedError"
        assert "podman build: builds nothing" in str(ended.error)
    assert f"since {script}:3: curl needs a network" in str(ended.error)


@pytest.mark.sandbox
def test_an_engine_that_does_not_respond_is_an_outage_of_one_task(tmp_path, monkeypatch):
    """The next task looks again: engines are busy at times."""
    again = tmp_path / "again"
    busy = f"[ -e {again} ] && exit 0; touch {again}; echo too busy >&2; exit 1"
    script = f'[ "$1" = ps ] && {{ {busy}; }}; echo builds nothing >&2; exit 1'
    podman = program(tmp_path / "bin/podman", script)
    program(tmp_path / "bin/docker", "echo no daemon >&2; exit 1")
    monkeypatch.setenv("PATH", f"{podman.parent}:{os.environ['PATH']}")
    stages = made(tmp_path / "stages", STAGES)
    first, second = outcomes(stages, stages)
    assert isinstance(first.error, EnvironmentFailed)
    assert "too busy" in str(first.error) and "no daemon" in str(first.error)
    assert isinstance(second.error, ImageError) and "builds nothing" in str(second.error)


@pytest.mark.sandbox
def test_without_an_engine_it_is_tried_in_a_room(tmp_path, no_engine):
    task = made(tmp_path / "t", "FROM debian\n")
    script = task.path / "tests" / "test.sh"
    script.write_text(f"#!/bin/bash\npip install x; true\n{script.read_text()}")
    (ended,) = outcomes(task)
    assert (ended.error, ended.rewards) == (None, {"reward": 1.0})


def test_a_task_that_cannot_run_is_known_before_the_start(tmp_path, no_engine):
    check_supported(AUTO, made(tmp_path / "simple", "FROM debian\n"))
    with pytest.raises(ImageError, match=r"golang.*no engine is here.*apt-get install podman"):
        check_supported(AUTO, made(tmp_path / "stages", STAGES))


def test_with_an_engine_that_task_can_run(tmp_path, an_engine):
    check_supported(AUTO, made(tmp_path / "stages", STAGES))


def test_a_machine_with_neither_says_so(no_engine, monkeypatch):
    async def fails(_):
        raise EnvironmentFailed("this machine cannot make rooms")

    async def use():
        async with environments_of(TaskEnvironment()):
            pass

    monkeypatch.setattr(EmbeddedEnvironments, "__aenter__", fails)
    with pytest.raises(EnvironmentFailed, match="cannot make rooms"):
        asyncio.run(use())
