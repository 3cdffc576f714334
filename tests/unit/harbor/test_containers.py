"""Containers: state between commands, limits, the verifier's turn, and machines without an engine."""

import asyncio
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from coding_model_project import cli
from coding_model_project.harbor.agents import Oracle
from coding_model_project.harbor.environment.base import (
    EnvironmentFailed,
    ImageError,
    Killed,
    RegistryUnreachable,
)
from coding_model_project.harbor.environment.container import Container, Engine, is_unreachable
from coding_model_project.harbor.environment.containers import ContainerEnvironments
from coding_model_project.harbor.environment.definition import one_network
from coding_model_project.harbor.environment.tree import Tree, from_tar, of_bytes, of_folder, to_tar
from coding_model_project.harbor.format.task import load_task
from coding_model_project.harbor.format.task_config import EnvironmentConfig, NetworkMode
from coding_model_project.harbor.trial import Trials
from tests.tables import tables
from tests.text_cases import sources
from tests.unit.harbor.folders import folder, program, solvable
from tests.unit.harbor.places import engine, listed, run_in_containers, write_image

SOURCES = sources(__file__)

CASES = tables("harbor")

# These tests list the machine's containers, and remove those of killed processes.
pytestmark = pytest.mark.xdist_group("containers")

ENGINE = 'while [ "$1" != c ]; do shift; done; shift; exec "$@"'
"""A container engine whose container `c` is this machine."""


def test_trees_travel_as_tar_files(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / ("long" * 40)).write_bytes(b"\0\xff" * 400)
    (tmp_path / "a" / "run").touch(mode=0o755)
    (tmp_path / "a" / "link").symlink_to("/elsewhere")
    tree = of_folder(tmp_path)
    assert from_tar(to_tar(tree), 1 << 20) == tree


@pytest.mark.parametrize(
    "entries",
    [
        (("/root/.ssh/x", "f", 0o644, b"x"),),
        (("../x", "f", 0o644, b"x"),),
        (("a", "l", 0o777, "/root"), ("a/x", "f", 0o644, b"x")),
        (("x", "f", 0o644, b"x"),) * 3,
    ],
)
def test_an_agents_own_tar_writes_nowhere_else(entries):
    archive = to_tar(Tree(entries))
    with pytest.raises(OSError, match="not a readable tar file"):
        from_tar(archive, 2)


def test_a_compressed_or_sparse_archive_does_not_unfold():
    content = to_tar(of_bytes("zeros", bytes(1 << 20)))
    with pytest.raises(OSError, match="not a readable tar file"):
        from_tar(gzip.compress(content), 1 << 30)
    sparse = tarfile.TarInfo("holes")
    sparse.type, sparse.size = tarfile.GNUTYPE_SPARSE, 0
    header = bytearray(sparse.tobuf(tarfile.GNU_FORMAT))
    header[483:495] = b"77777777777\0"  # the size with its holes: 8 GiB
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 8 * 32 + sum(header[156:512]))
    with pytest.raises(OSError, match="bytes"):
        from_tar(bytes(header) + bytes(1024), 1 << 20)


def test_a_commands_variables_are_not_on_the_engines_command_line(tmp_path):
    engine = program(tmp_path / "engine", f'echo "$@" > {tmp_path}/words\n{ENGINE}')
    env = {"A": "it's\na"}
    container = Container(Engine(str(engine)), "c", workdir="/", env=env, user=None)
    ended = asyncio.run(container.run_command('printf "$A$KEY"', env={"KEY": "sk-secret"}))
    assert ended.stdout == "it's\nask-secret"
    assert "sk-secret" not in (tmp_path / "words").read_text()


@pytest.mark.parametrize(
    ("kind", "said"), [("podman", "not installed"), ("docker", "Cannot connect")]
)
def test_a_machine_without_an_engine_says_so_with_the_way_out(
    tmp_path, monkeypatch, capsys, kind, said
):
    folder(tmp_path / "task")
    # A client without its server prints only this.
    program(tmp_path / "bin/docker", "echo Cannot connect to the Docker daemon >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    assert cli.main(["harbor", "grade", str(tmp_path), "--environment", kind]) == 3
    out, error = capsys.readouterr()
    assert out == "" and said in error and "rooms, which need none" in error


CLEANED = SOURCES["cleaned"]


def test_clean_removes_the_images_of_tasks_that_are_not_in_use(tmp_path, monkeypatch, capsys):
    program(tmp_path / "podman", CLEANED.format(log=tmp_path / "log"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["harbor", "clean"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "podman: 1 images removed, 1 in use\n"
    assert "docker is not installed" in printed.err
    removed = [line for line in (tmp_path / "log").read_text().splitlines() if "rmi" in line]
    assert removed == ["rmi localhost/coding-harbor:a", "rmi localhost/coding-harbor:b"]


def test_gpus_that_this_machine_has_not_are_named(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM debian\n")
    with pytest.raises(ImageError, match=r"environment.gpus = 100: this machine has \d"):
        create = ContainerEnvironments("docker").create
        asyncio.run(create(tmp_path, EnvironmentConfig(gpus=100), {}))


def test_the_narrowest_network_of_a_trial_is_its_only_one(tmp_path):
    task = load_task(folder(tmp_path, "[agent]\nnetwork_mode = 'no-network'\n"))
    assert one_network(task).network_mode is NetworkMode.no_network
    hosts = "network_mode = 'allowlist'\nallowed_hosts = ['a.org', 'b.org']\n"
    config = one_network(load_task(folder(tmp_path / "b", f"[verifier]\n{hosts}")))
    assert (config.network_mode, config.allowed_hosts) == ("allowlist", ("a.org", "b.org"))


@pytest.mark.sandbox
def test_a_container_has_its_images_user_and_variables_and_the_tasks_network_and_memory(tmp_path):
    write_image(tmp_path, "USER ann\nENV FROM_IMAGE=i\n")
    config = EnvironmentConfig(network_mode=NetworkMode.no_network, memory_mb=100)

    async def use(environments):
        room = await environments.create(tmp_path, config, {"GIVEN": "task"})
        look = "id -un; pwd; echo $GIVEN $FROM_IMAGE $MORE; ls /sys/class/net"
        said = await room.run_command(look, env={"MORE": "more"})
        big = await room.run_command("tail /dev/zero")
        await room.write_file("note", b"\xff\n", 0o600)
        with pytest.raises(FileNotFoundError):
            await room.read_file("nowhere")
        with pytest.raises(OSError, match="more than 1 bytes"):
            await room.read_file("/app/note", max_bytes=1)
        note = await room.read_file("/app/note")
        await room.cleanup()
        with pytest.raises(EnvironmentFailed):
            await room.run_command("true")
        return said, big, note, room.user

    said, big, note, user = run_in_containers(use)
    assert said.stdout == "ann\n/app\ntask i more\nlo\n" and user == "ann"
    assert big.killed is Killed.memory and note == b"\xff\n"


@pytest.mark.sandbox
def test_a_trial_earns_what_it_is_worth_and_a_killed_run_leaves_no_container(tmp_path):
    here = engine()
    daemon = "(while :; do echo 1 > /logs/verifier/reward.txt; sleep 0.01; done) &\n"
    task = solvable(tmp_path / "task", solve=f"echo 0 > answer\n{daemon}")
    write_image(task / "environment")

    async def use(environments):
        return await Trials(environments).run(load_task(task), Oracle())

    outcome = run_in_containers(use)
    assert (outcome.error, outcome.rewards) == (None, {"reward": 0.0})
    assert listed(here) == []
    (task / "solution" / "solve.sh").write_text("#!/bin/bash\nsleep 60\n")
    command = [sys.executable, "-m", "coding_model_project", "harbor", "grade", str(tmp_path)]
    with subprocess.Popen([*command, "--environment", here]) as killed:
        within(60, lambda: listed(here))
        killed.send_signal(signal.SIGKILL)
    assert len(listed(here)) == 1
    run_in_containers(nothing)
    assert listed(here) == []


@pytest.mark.sandbox
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_run_was_building_ends_with_it(tmp_path, by):
    task, sleep = folder(tmp_path / "task", tests__test_sh="#!/bin/bash\n"), f"sleep 3{os.getpid()}"
    write_image(task / "environment", f"RUN {sleep}\n")
    command = [sys.executable, "-m", "coding_model_project", "harbor", "grade", str(tmp_path)]
    with subprocess.Popen([*command, "--environment", engine()]) as killed:
        within(60, lambda: building(sleep))
        killed.send_signal(by)
    within(20, lambda: not building(sleep))


SLOW = """case "$*" in
*/app/late*) setsid sh -c 'sleep 1; exec "$@"' sh {engine} "$@" <&0 & wait;;
*) exec {engine} "$@";;
esac"""
"""A container engine that starts one command late, also if its client is gone by then."""


@pytest.mark.sandbox
def test_a_command_that_was_cancelled_before_it_started_never_runs(tmp_path, monkeypatch):
    name = engine()
    program(tmp_path / "bin" / name, SLOW.format(engine=shutil.which(name)))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    write_image(tmp_path / "image")

    async def use(environments):
        made = await environments.create(tmp_path / "image", EnvironmentConfig(), {})
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(made.run_command("touch /app/late"), 0.5)
        await asyncio.sleep(2)
        found = await made.run_command("ls -A /app")
        await made.cleanup()
        return found

    found = run_in_containers(use)
    assert (found.exit_code, found.stdout) == (0, "")


def within(seconds: float, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def building(command: str) -> bool:
    lines = (process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"]))
    return any(" ".join(line) == command for line in lines)


async def nothing(_):
    return None


class Registry(BaseHTTPRequestHandler):
    """A registry without images, which an outage can hit."""

    status = 404

    def do_GET(self):
        error = {"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}
        content = json.dumps({"errors": [error]} if self.status == 404 else {}).encode()
        self.send_response(200 if self.path == "/v2/" and self.status == 404 else self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_HEAD = do_GET


@contextmanager
def registry(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ThreadingHTTPServer, str]]:
    """Serve a registry that podman knows; yields it and its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        place = f"127.0.0.1:{server.server_port}"
        kept = folder / "registries.conf"
        kept.write_text(f'[[registry]]\nlocation = "{place}"\ninsecure = true\n')
        monkeypatch.setenv("CONTAINERS_REGISTRIES_CONF", str(kept))
        yield server, place
        server.shutdown()


@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("named", "also_gone"),  # podman tries again for 3 s for each name
    [("FROM {}\n", True), ("FROM scratch\nCOPY --from={} /x /x\n", False), (None, True)],
)
def test_a_registry_that_does_not_answer_is_an_outage(tmp_path, monkeypatch, named, also_gone):
    """A name that a registry does not know is the task's."""
    (tmp_path / "task").mkdir()
    answering = [(404, ImageError), (503, RegistryUnreachable)]
    answering += [(None, RegistryUnreachable)] if also_gone else []
    monkeypatch.setattr(Registry, "status", 404)
    with registry(tmp_path, monkeypatch) as (server, place):
        image = f"{place}/no/image:1"
        if named:
            (tmp_path / "task" / "Dockerfile").write_text(named.format(image))
        config = EnvironmentConfig(docker_image=None if named else image)
        for status, error in answering:
            if status is None:
                server.shutdown()
                server.server_close()
            else:
                Registry.status = status
            with pytest.raises((ImageError, EnvironmentFailed), match="127") as raised:
                run_in_containers(lambda made: made.create(tmp_path / "task", config, {}))
            assert raised.type is error, raised.value


@pytest.mark.parametrize(("output", "unreachable"), CASES["dockers words"])
def test_dockers_words_for_a_silent_registry_are_an_outage_and_no_others(output, unreachable):
    assert is_unreachable(output.encode()) is unreachable


@pytest.mark.parametrize(("knows_it", "error"), [(True, OSError), (False, EnvironmentFailed)])
def test_an_agent_that_breaks_its_container_is_no_outage(knows_it, error):
    class Breaking:
        async def detach(self, *_):
            pass

        async def run(self, *_, **__):
            return 127, b"", b"no sh in it"

        async def ask(self, *_):
            if not knows_it:
                raise EnvironmentFailed("no such container")
            return "0123"

    async def use():
        container = Container(Breaking(), "coding-harbor-x", workdir="/", env={}, user=None)
        container._has_run = True
        with pytest.raises(error) as raised:
            await container.begin_verifier()
        return type(raised.value)

    assert asyncio.run(use()) is error


@pytest.mark.parametrize("version", ["4.3.1", "5.4.2"])
def test_heredocs_are_refused_where_podman_would_misread_them(tmp_path, monkeypatch, version):
    log = tmp_path / "log"
    says = f'echo "$1" >> {log}; [ "$1" = version ] && echo {version}; [ "$1" != image ]'
    program(tmp_path / "podman", says)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    task = tmp_path / "task"
    task.mkdir()

    def tried(dockerfile):
        (task / "Dockerfile").write_text(dockerfile)

        async def use():
            async with ContainerEnvironments("podman") as made:
                with pytest.raises(ImageError) as raised:
                    await made.create(task, EnvironmentConfig(), {})
                return str(raised.value)

        log.unlink(missing_ok=True)
        return asyncio.run(use()), "build" in log.read_text()

    written = "FROM debian\nRUN a \\\n  && cat > /x <<'EOF'\nENV A=b\nEOF\nCOPY x /\n"
    error, built = tried(written)
    assert built == (version == "5.4.2")
    if not built:
        assert "Dockerfile:3" in error and "podman 4.3.1 does not build here-documents" in error
    for text in ("RUN cat <<< EOF\nUSER EOF\n", "RUN echo $((1<<EOF))\n", "RUN a <<EOF\n"):
        assert tried(f"FROM debian\n{text}")[1]


@pytest.mark.sandbox
def test_an_image_without_a_registry_is_docker_hubs(tmp_path, monkeypatch):
    """As installed by Debian, podman knows no registry for `FROM owner/image`."""
    monkeypatch.delenv("CONTAINERS_REGISTRIES_CONF", raising=False)
    given = [engine(), "info", "--format", "{{json .Registries}}"]
    if subprocess.run(given, capture_output=True, check=False).stdout.strip() != b"{}":
        pytest.skip("docker, or registries of this machine's own")
    (tmp_path / "Dockerfile").write_text("FROM no-such-owner/no-such-image:1\n")
    with pytest.raises((ImageError, EnvironmentFailed)) as raised:
        run_in_containers(lambda made: made.create(tmp_path, EnvironmentConfig(), {}))
    assert "docker.io" in str(raised.value) and "short-name" not in str(raised.value)
