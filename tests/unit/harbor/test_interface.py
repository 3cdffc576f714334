"""Harbor tasks from Python: the tinker cookbook's names, its sandboxes, and verdicts on agents."""

import asyncio
import json
import time

import pytest

import coding_model_project as cmp
from coding_model_project.cli import main
from coding_model_project.harbor import interface
from tests.text_cases import sources
from tests.unit.harbor.folders import CHECK, folder, solvable

SOURCES = sources(__file__)

pytestmark = pytest.mark.sandbox


def task(path, **changes):
    """Write a task whose reward is what its agent writes to /app/answer."""
    return solvable(path, **{"instruction_md": f"{path.name}\n", **changes})


def test_tasks_of_a_folder_or_of_harbors_cache(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    task(cache / "set" / "b", toml="[metadata]\nlevel = 3\n")
    task(cache / "set" / "a")
    folder(cache / "set" / "bad", toml="[task]\nname = 'no-org'\n")
    monkeypatch.setattr(interface, "HARBOR_CACHE_DIR", cache)
    for path in (cache / "set", "set", ""):
        with pytest.warns(UserWarning, match="bad"):
            first, second = cmp.load_harbor_tasks(path)
        assert (first.task_name, first.instruction) == ("a", "a\n")
        assert second.task_dir == (cache / "set" / "b").resolve()
        assert second.config["metadata"] == {"level": 3}
    with pytest.raises(cmp.ConfigError, match="harbor datasets download"):
        cmp.load_harbor_tasks("none")


def test_an_agent_works_in_a_sandbox_and_is_judged(tmp_path):
    for name in ("right", "wrong", "idle"):
        task(tmp_path / name, solve="echo 1 > answer")
    tasks = cmp.load_harbor_tasks(tmp_path)

    async def agent(one, sandbox):
        reward = {"right\n": "1", "wrong\n": "0.5"}.get(one.instruction)
        if reward is not None:
            written = await sandbox.write_file("answer", reward)
            assert written.exit_code == 0 and isinstance(sandbox, cmp.HarborSandbox)

    graded = asyncio.run(cmp.grade_harbor(tasks, agent))
    found = {verdict.problem_id: verdict for verdict in graded}
    assert found["harbor/right"].passed and found["harbor/right"].rewards == {"reward": 1}
    assert not found["harbor/wrong"].passed and found["harbor/wrong"].score == 0.5
    assert found["harbor/idle"].error is not None  # its verifier can work: it rewards the solution
    assert all(verdict.passed for verdict in asyncio.run(cmp.grade_harbor(tasks)))


def test_the_agents_own_exception_is_raised_and_an_outage_can_be_returned(tmp_path):
    task(tmp_path / "one")
    tasks = cmp.load_harbor_tasks(tmp_path)

    async def broken(one, sandbox):
        raise ZeroDivisionError

    async def away(env_dir, timeout):
        raise ConnectionError("the provider is away")

    with pytest.raises(ZeroDivisionError):
        asyncio.run(cmp.grade_harbor(tasks, broken))
    with pytest.raises(cmp.SandboxError, match="the provider is away"):
        asyncio.run(cmp.grade_harbor(tasks, broken, sandbox_factory=away))
    (error,) = asyncio.run(
        cmp.grade_harbor(tasks, broken, sandbox_factory=away, return_errors=True)
    )
    assert isinstance(error, cmp.SandboxError)


def test_our_sandboxes_serve_other_programs(tmp_path):
    path = task(tmp_path / "one", toml='[environment.env]\nA = "b"\n')

    async def body():
        sandbox = await cmp.harbor_sandbox(path / "environment", 600)
        try:
            await sandbox.send_heartbeat()
            ended = await sandbox.run_command("echo $A; pwd; echo x >&2; exit 3")
            assert (ended.stdout, ended.stderr, ended.exit_code) == ("b\n/app\n", "x\n", 3)
            assert (await sandbox.run_command("pwd", workdir="/tmp")).stdout == "/tmp\n"
            assert (await sandbox.run_command("sleep 60", timeout=1)).exit_code < 0
            assert (await sandbox.write_file("/a/b", b"#!/bin/sh\necho ran\n", True)).exit_code == 0
            assert (await sandbox.run_command("/a/b")).stdout == "ran\n"
            assert (await sandbox.write_file("/a/c", b"", timeout=0)).exit_code < 0
            with pytest.raises(cmp.SandboxError):
                await sandbox.send_heartbeat(timeout=0)
            assert (await sandbox.read_file("/a/b", max_bytes=5)).stdout == "#!/bi"
            assert (await sandbox.read_file("/none")).exit_code > 0
        finally:
            await sandbox.cleanup()
        with pytest.raises(cmp.SandboxError):
            await sandbox.send_heartbeat()

    asyncio.run(body())


def test_a_sandbox_ends_after_its_lifetime(tmp_path):
    path = task(tmp_path / "one")

    async def body():
        sandbox = await cmp.harbor_sandbox(path / "environment", 1)
        deadline = time.monotonic() + 60
        with pytest.raises(cmp.SandboxError):
            while time.monotonic() < deadline:
                await sandbox.send_heartbeat()
                await asyncio.sleep(0.1)

    asyncio.run(body())


FACTORY = SOURCES["factory"]


def test_a_command_takes_a_sandbox_factory_by_name(tmp_path, monkeypatch, capsys):
    """A failure of its sandbox is an outage, never a reward."""
    (tmp_path / "my_factories.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    toml = '[agent]\ntimeout_sec = 10\n[environment]\ncpus = 2\n[verifier.env]\nV = "w"\n'
    for name, line in {"right": "echo 1 > answer", "slow": "sleep 600"}.items():
        verifies = CHECK.replace("cat", '[ "$V" = w ] && cat')
        task(tmp_path / "t" / name, toml=toml, tests__test_sh=verifies, solve=line)
    job, script = tmp_path / "job", tmp_path / "script.sh"
    command = ["harbor", "grade", str(tmp_path / "t"), "--environment", "my_factories:factory"]
    assert main([*command, "--json", "--out", str(job)]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["rewards"] == {"reward": 1.0}, lines
    assert lines[1]["exception"] == "AgentTimeoutError"
    (log,) = job.glob("right__*/trial.log")
    assert "environment.cpus is not passed to the sandbox factory" in log.read_text()
    for fault in ("lose", "hang"):
        script.write_text(f"true # {fault}")
        assert main([*command, "--json", "--script", str(script)]) == 3
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["rewards"] for line in lines] == [None, None]
        assert "terminated" in lines[0]["reason"]
