"""The stages that build a program: confined commands, executed one by one in one folder."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import shutil
import socket
import time
import zipfile
from pathlib import Path

from coding_model_project.isolation import linux
from coding_model_project.isolation.confine import Limits, Tier
from coding_model_project.sandbox.embedded import frames, launch
from coding_model_project.sandbox.embedded.launch import Place

_CPU_S, _WALL_S, _OUTPUT_KB = 30.0, 50.0, 256 << 10
"""Limits of compilers, for which some sources are hard work."""

_STAGE_FOLDER = 512 << 20
_SPARE = 64 << 20
"""Free bytes of disk below which lack of space may be the reason of a compiler's failure."""

_OUTPUT_HEAD = 4000
"""Bytes of a stage's output that are kept: the first ones, since the first error causes others."""


def make(
    channel: socket.socket,
    place: Place,
    head: frames.Head,
    files: dict[str, bytes],
    confined: mmap.mmap,
) -> bytes | None:
    """Run the stages, and return their product, which is also sent to the host; None if one failed.

    Raises:
        RuntimeError: a stage was not confined, or the machine was too busy or full.
    """
    assert place.folder is not None
    memory_mb = max(head["compiler_mb"], head["limits"]["memory_mb"])
    limits = Limits(cpu_s=_CPU_S, wall_s=_WALL_S, memory_mb=memory_mb, output_kb=_OUTPUT_KB)
    with _folder(place) as folder:
        if head["packs"]:
            (folder / head["packs"]).mkdir()
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
        failures = (_stage(place, stage, limits, confined) for stage in head["stages"])
        failure = next((found for found in failures if found is not None), None)
        product = b""
        if failure is None and head["packs"]:
            try:
                product = pack_folder(folder / head["packs"])
            except ValueError as error:
                failure = str(error), 1
        elif failure is None and head["product"]:
            product = (folder / head["product"]).read_bytes()
    if failure is not None:  # sent after the folder is emptied
        text, code = failure
        frames.send(channel, {"failed": text, "exit": code})
        return None
    frames.send(channel, {"compiled": True}, product)
    return product


@contextlib.contextmanager
def _folder(place: Place):
    """Provide an empty folder for the stages of one program."""
    assert place.folder is not None
    folder = Path(place.folder)
    if place.confinement.tier is Tier.namespaces:
        linux.unshare(linux.CLONE_NEWNS)
        flags = linux.MS_NOSUID | linux.MS_NODEV
        size = f"size={_STAGE_FOLDER},nr_inodes=512"
        linux.mount("stages", place.folder, "tmpfs", flags, size).make()
        try:
            yield folder
        finally:
            linux.unmount(place.folder)
        return
    _empty(folder)
    try:
        yield folder
    finally:
        _empty(folder)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _stage(
    place: Place, words: list[str], limits: Limits, confined: mmap.mmap
) -> tuple[str, int] | None:
    """Run a command of a recipe; return its output and exit code if it failed, else None.

    The code is 0 if it was ended by a limit, and negative if a signal of somebody else ended it.
    """
    null = os.open("/dev/null", os.O_RDWR)
    output = linux.memory_file("output")
    started = time.monotonic()
    pid = launch.start(place, words[0], words, limits, [null, output, output], confined)
    killed = launch.watch(pid, place, limits, started)
    _, status, usage = os.wait4(pid, 0)
    text = os.pread(output, _OUTPUT_HEAD, 0).decode("utf-8", "replace").strip()
    os.close(output)
    os.close(null)
    tool, code = _tool(words), os.waitstatus_to_exitcode(status)
    if code == 0:
        return None
    if not confined[0]:
        raise RuntimeError(f"{tool} was not started confined: {text}")
    idle = usage.ru_utime + usage.ru_stime < limits.cpu_s / 2
    if killed == "starved" or (killed == "wall" and idle):
        raise RuntimeError(f"{tool} did not end within {limits.wall_s} s: the machine is too busy")
    if place.confinement.tier is not Tier.namespaces and _is_full(place.folder):
        raise RuntimeError(f"{tool} ended with {code}, and the disk of {place.folder} is full")
    if killed is not None:
        text, code = f"{text}\n{tool} was ended by its {killed} limit".strip(), 0
    return text or f"{tool} ended with {code}", code


def _tool(words: list[str]) -> str:
    """Return the name of the tool that a command runs, directly or through the dynamic loader."""
    at = words.index("--library-path") + 2 if "--library-path" in words else 0
    return Path(words[at]).name


def _is_full(folder: str | None) -> bool:
    disk = os.statvfs(folder or "/")
    return disk.f_bavail * disk.f_frsize < _SPARE or (disk.f_files > 0 and disk.f_favail == 0)


_MOST_BYTES = 64 << 20
_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest date in an archive, used for all files: equal content makes equal archives."""


def pack_folder(folder: Path) -> bytes:
    """Return an archive of all regular files in a folder with an untrusted source's compiled files.

    Links are left out: their targets are not the program's. Whatever wrote them has ended.

    Raises:
        ValueError: the files are too large.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_symlink() or not path.is_file():
                continue
            if packed.tell() + path.stat().st_size > _MOST_BYTES:
                raise ValueError(f"the program's classes are larger than {_MOST_BYTES >> 20} MB")
            member = zipfile.ZipInfo(str(path.relative_to(folder)), date_time=_DATE)
            archive.writestr(member, path.read_bytes())
    return packed.getvalue()
