"""Rooms: state between commands, limits, and isolation."""

import asyncio
import contextlib
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from coding_model_project.harbor.environment.base import EnvironmentFailed, ImageError, Killed
from coding_model_project.harbor.format.task_config import EnvironmentConfig
from tests.processes import below
from tests.tables import tables
from tests.text_cases import sources
from tests.unit.harbor.places import end_rooms, run_in_environments

CASES = tables("harbor")

SOURCES = sources(__file__)

pytestmark = pytest.mark.sandbox


def in_a_room(folder, use, dockerfile="FROM debian\nWORKDIR /app\n", config=None, **files):
    """Return the result of `await use(room)`, in a room built from a Dockerfile."""
    for name, text in {"Dockerfile": dockerfile, **files}.items():
        (folder / name).write_text(text)

    async def body(environments):
        config_ = config or EnvironmentConfig()
        room = await environments.create(folder, config_, {"GIVEN": "task"})
        try:
            return await use(room)
        finally:
            await room.cleanup()

    return run_in_environments(body)


def test_files_and_background_processes_last_and_end_with_the_room(tmp_path):
    async def use(room):
        await room.run_command("sleep 1000 & echo $! > pid; echo $GIVEN > note")
        alive = await room.run_command("kill -0 $(cat pid); echo $?; cat note; pwd")
        async with asyncio.timeout(20):  # the shell's fork becomes it in a moment
            while "sleep" not in [child.name() for child in below("keeper")]:
                await asyncio.sleep(0.01)
        await room.begin_verifier()
        gone = await room.run_command("kill -0 $(cat pid) 2>/dev/null; echo $?; cat /app/note")
        return alive.stdout, gone.stdout

    assert in_a_room(tmp_path, use) == ("0\ntask\n/app\n", "1\ntask\n")
    end_rooms()
    assert not below("keeper")


HOG = SOURCES["hog"]


def named(process: psutil.Process) -> str:
    """The name of a process; none if it has ended meanwhile."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name()
    return ""


def test_the_memory_limit_also_holds_between_commands(tmp_path):
    async def use(room):
        await room.write_file("/app/hog.py", HOG.encode())
        await room.run_command(
            "setsid python3 hog.py & setsid sleep 77 & until [ -e started ]; do sleep 0.05; done"
        )
        most = 0
        async with asyncio.timeout(60):
            while found := [one for one in below("keeper") if named(one) in ("python3", "sleep")]:
                sizes = [0]
                for one in found:
                    with contextlib.suppress(psutil.Error):
                        sizes.append(one.memory_info().rss)
                most = max(most, *sizes)
                await asyncio.sleep(0.02)
        return most >> 20, (await room.run_command("ls; pgrep -c sleep")).stdout

    config = EnvironmentConfig(memory_mb=100)
    most_mb, left = in_a_room(tmp_path, use, config=config)
    assert most_mb < 400 and left == "hog.py\nstarted\n0\n"


DEEP = "import os\nfor _ in range(300):\n    os.mkdir('d' * 200)\n    os.chdir('d' * 200)\n"
CHAIN = "import os\nos.symlink('/tests', 'l0')\n"
CHAIN += "for n in range(2000):\n    os.symlink(f'l{n}', f'l{n + 1}')\n"


@pytest.mark.parametrize(
    ("leaves", "error"),
    CASES["left by agents"],
    ids=["links", "a chain of links", "in the way", "deep folders"],
)
def test_an_agent_leaves_nothing_by_which_its_environment_fails(tmp_path, leaves, error):
    async def use(room):
        await room.run_command(leaves)
        if error:
            with pytest.raises(OSError, match=error) as raised:
                await room.begin_verifier()
            assert not isinstance(raised.value, EnvironmentFailed)
        else:
            await room.begin_verifier()
            await room.write_file("/tests/of_ours", b"1")
        return (await room.run_command("cat /tests/* /app/of_ours 2>/dev/null")).stdout

    assert in_a_room(tmp_path, use) == ("" if error else "1")


def test_limits(tmp_path):
    async def use(room):
        memory = await room.run_command("python3 -c 'x = bytearray(1 << 30)'")
        forks = await room.run_command("bomb() { bomb | bomb & }; bomb; sleep 0.2", timeout_s=10)
        await room.begin_verifier()
        disk = await room.run_command("head -c 200000000 /dev/zero > big")
        return memory, forks, disk

    config = EnvironmentConfig(memory_mb=300, storage_mb=50)
    memory, forks, disk = in_a_room(tmp_path, use, config=config)
    assert memory.killed is Killed.memory
    assert forks.exit_code == 0 or forks.killed is not None
    assert disk.exit_code != 0 and "No space left" in disk.stderr


ESCAPES = Path(__file__).with_name("escapes.sh").read_text()


def test_nothing_gets_out(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("host")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address, port = listening.getsockname()
        text = ESCAPES.format(here=Path.cwd(), secret=secret, address=address, port=port)
        ended = in_a_room(tmp_path, lambda room: room.run_command(text, timeout_s=30))
    assert ended.stdout == "", ended.stdout
    assert secret.read_text() == "host"


def test_files_are_found_inside_of_the_room_only(tmp_path):
    (tmp_path / "secret").write_text("host")

    async def use(room):
        await room.run_command(
            f"ln -s {tmp_path}/secret link; ln -s /proc/1/root/etc root; mkfifo f"
        )
        for path in ("link", "root/hostname", "missing"):
            with pytest.raises(OSError):
                await room.read_file(path)
        with pytest.raises(OSError, match="not a regular file"):
            await room.read_file("f")
        with pytest.raises(IsADirectoryError):
            await room.read_file("/etc")
        await room.write_file("link", b"mine")
        await room.write_file("/data/new/file", b"\x00\xff", 0o755)
        return await room.read_file("/data/new/file"), await room.read_file("link")

    assert in_a_room(tmp_path, use) == (b"\x00\xff", b"mine")
    assert (tmp_path / "secret").read_text() == "host"


def test_users_have_names_and_homes_and_no_rights(tmp_path):
    async def use(room):
        named = await room.run_command(
            "id -u; echo $HOME; touch /tmp/own && echo wrote", user="daemon"
        )
        numbered = await room.run_command("id -u; id -g", user="1234:55")
        unknown = await room.run_command("true", user="nobodyatall")
        elsewhere = await room.run_command("true", cwd="/nowhere")
        return named.stdout, numbered.stdout, unknown, elsewhere

    named, numbered, unknown, elsewhere = in_a_room(tmp_path, use)
    assert (named, numbered) == ("1\n/usr/sbin\nwrote\n", "1234\n55\n")
    assert unknown.exit_code == 126 and "unable to find user nobodyatall" in unknown.stderr
    assert elsewhere.exit_code == 126 and "cannot change to /nowhere" in elsewhere.stderr


def test_an_image_with_commands_is_made_once_and_laid_out_for_each_room(tmp_path):
    dockerfile = (
        "FROM ubuntu:24.04\nENV COLOUR=blue\nWORKDIR /srv\nCOPY data.txt .\n"
        "RUN wc -c < data.txt > size && mkdir /opt/tool && echo $COLOUR > /opt/tool/colour\n"
    )

    async def use(room):
        return await room.run_command("pwd; cat size /opt/tool/colour")

    ended = in_a_room(tmp_path, use, dockerfile, **{"data.txt": "12345"})
    assert ended.stdout == "/srv\n5\nblue\n"


def test_a_command_of_an_image_that_fails_is_named(tmp_path):
    async def use(room):
        raise AssertionError("there is no room")

    with pytest.raises(ImageError, match=r"Dockerfile:2: RUN: exited with code 7.*oh no.*podman"):
        in_a_room(tmp_path, use, "FROM debian\nRUN echo oh no >&2; exit 7\n")


def test_a_keeper_that_dies_is_replaced(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM debian\n")

    async def use(environments):
        made = (tmp_path, EnvironmentConfig(), {})
        room = await environments.create(*made)
        keeper, *rooms = below("keeper")
        keeper.kill()
        psutil.wait_procs(rooms, timeout=20)  # they die with it, a moment later
        with pytest.raises(EnvironmentFailed, match="the room is lost"):
            await room.run_command("true")
        await room.cleanup()
        again = await environments.create(*made)
        ended = await again.run_command("echo again")
        await again.cleanup()
        return ended.stdout

    assert run_in_environments(use) == "again\n"
    end_rooms()
    assert not below("keeper")


_OWNER = SOURCES["owner"]


def test_rooms_end_with_an_owner_that_is_killed(tmp_path):
    (tmp_path / "Dockerfile").write_text("FROM debian\n")
    command = [sys.executable, "-c", _OWNER, str(tmp_path)]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert owner.stdout is not None
        if owner.stdout.readline() != "busy\n":
            pytest.skip("no tier namespaces")
        inside = psutil.Process(owner.pid).children(recursive=True)
    finally:
        owner.kill()
        owner.communicate()
    assert len(inside) > 3 * 2  # a keeper, and of each room a steward, its first process and sleep
    _, alive = psutil.wait_procs(inside, timeout=10)
    assert not [one for one in alive if one.status() != psutil.STATUS_ZOMBIE]
