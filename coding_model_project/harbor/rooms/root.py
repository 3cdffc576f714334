"""The root of a room: the host's programs, read-only, and the room's own folders.

The keeper builds a base once from bind mounts of the host's directories. A room binds the parts it needs.
Everything that decides which program runs (`/usr`, `/bin`, the loader's files in `/etc`, …) is a separate
mount point. A mount point can be neither removed nor renamed. So a candidate cannot replace it by
something else for the verifier to run, although it owns the root directory.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from coding_model_project.contained import in_root
from coding_model_project.isolation import confine, linux

BASE = "/base"
"""The keeper's folder with the read-only parts of every room."""

TESTS, LOGS = "/tests", "/logs/verifier"
"""A verifier's folders."""

PLACE = "/room"
"""Folder in which a room's root is built."""

CLEARING_S = 30.0
"""Wall seconds in which a candidate's files must be searched for links."""

PYTHON = "python"
"""Top-level directory of the interpreter that runs this project, if it is not below /usr."""

PACKAGES = "packages"
"""Folder of the base with this project's installed modules, for rooms that request them."""

AGENT = "opt/agent"
"""A room's read-only folder with the files of agents that work in rooms."""

_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_ETC = """
bash.bashrc ca-certificates.conf debian_version environment ethertypes gai.conf inputrc issue
localtime locale.alias locale.gen lsb-release magic mime.types os-release profile protocols rpc
services shells skel timezone
"""
"""Names in the host's /etc that are copied into rooms; they reveal nothing about this machine."""

_ETC_FIXED = """
alternatives fonts java ld.so.cache ld.so.conf ld.so.conf.d nsswitch.conf perl python python3 ssl
"""
"""Names in the host's /etc that rooms bind read-only, since they decide which programs run."""

_MADE = {
    "passwd": "root:x:0:0:root:/root:/bin/bash\n"
    "daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n"
    "www-data:x:33:33:www-data:/var/www:/usr/sbin/nologin\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\ndaemon:x:1:\nwww-data:x:33:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost room\n::1 localhost\n",
    "hostname": "room\n",
    "resolv.conf": "",
}
_PROC_HIDDEN = """
buddyinfo interrupts kallsyms kcore key-users keys kmsg kpagecgroup kpagecount kpageflags latency_stats
modules pagetypeinfo sched_debug slabinfo softirqs sysrq-trigger timer_list vmallocinfo
"""
"""Entries of /proc that reveal more about the machine than programs need; all of /proc is read-only."""

_ABOVE_TESTS = ".pytest.ini conftest.py pyproject.toml pytest.ini setup.cfg setup.py tox.ini"
"""Files in the root directory that pytest would apply to /tests."""

FOLDERS = {
    "app": 0o777, "home": 0o755, "logs": 0o777, "logs/agent": 0o777, "logs/artifacts": 0o777,
    "logs/verifier": 0o777, "media": 0o755, "mnt": 0o755, "opt": 0o755, "root": 0o700,
    "run": 0o755, "run/lock": 0o1777, "solution": 0o755, "srv": 0o755, "tests": 0o755,
    "tmp": 0o1777, "var": 0o755, "var/cache": 0o755, "var/lib": 0o755, "var/log": 0o755,
    "var/tmp": 0o1777, "proc": 0o555, "sys": 0o555, "old": 0o700,
}  # fmt: skip
"""Folders of every room, with their permissions."""

_QUIET = linux.MS_NOSUID | linux.MS_NODEV


@dataclass(frozen=True, slots=True)
class Base:
    """The base that the keeper built."""

    system: tuple[str, ...]
    """Top-level directories that a room binds."""
    fixed: tuple[str, ...]
    """Names below /etc that a room binds."""
    packages_at: str | None = None
    """The interpreter's folder over which a room may mount this project's installed modules."""
    agent: bool = False
    """True if rooms have an agent folder."""


def build(mount_point: Path, agent: Path | None = None) -> Base:
    """Build the base and make it this process's root, so that no other host files remain visible.

    Args:
        mount_point: a directory of the host to build on.
        agent: a folder that rooms mount at `AGENT`.

    Raises:
        OSError: this machine does not allow it.
    """
    linux.mount("base", str(mount_point), "tmpfs", _QUIET, "size=16m,mode=755").make()
    base = mount_point / BASE[1:]
    base.mkdir()
    (mount_point / PLACE[1:]).mkdir()
    (mount_point / "old").mkdir()
    system = [name for name in _SYSTEM if Path("/", name).is_dir()]
    for name in system:
        confine.bind(Path("/", name), base / name)
    if not Path(sys.base_prefix).is_relative_to("/usr"):
        confine.bind(Path(sys.base_prefix), base / PYTHON)
        system.append(PYTHON)
    packages_at = _bind_packages(base)
    if agent is not None:
        confine.bind(agent, base / "agent")
    # The kernel allows a new /proc only if a whole one is visible; each phase mounts its own over it.
    confine.bind(Path(confine.PROC), base / "proc")
    fixed = _fill_etc(base / "etc")
    _make_devices(base / "dev")
    os.chdir(mount_point)
    linux.pivot_root(".", "old")
    os.chdir("/")
    linux.unmount("/old")
    Path("/old").rmdir()
    return Base(tuple(system), tuple(fixed), packages_at, agent is not None)


def interpreter_folder() -> str:
    """Return a room's folder of the interpreter that runs this project, without `bin`."""
    prefix = Path(sys.base_prefix)
    return str(prefix) if prefix.is_relative_to("/usr") else f"/{PYTHON}"


def packages_folder() -> str:
    """Return a room's folder over which it may mount this project's installed modules.

    That needs an existing, read-only folder. The distribution decides which folders an interpreter
    searches, so the folder is also in `PYTHONPATH`.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return f"{interpreter_folder()}/lib/{version}/site-packages"


def _bind_packages(base: Path) -> str | None:
    """Bind the installed modules into the base.

    Returns:
        The folder at which a room may mount them; None if its interpreter has no folder for modules.
    """
    at = packages_folder().lstrip("/")
    installed = Path(sysconfig.get_path("purelib"))
    if not (base / at).is_dir() or not installed.is_dir():
        return None
    confine.bind(installed, base / PACKAGES)
    return at


def hide_own_package() -> None:
    """Hide this package in the base's modules, since it contains the generator of test problems.

    Call it once all layers over the modules are mounted.
    """
    for path in Path(BASE, PACKAGES).glob("coding_model_project*"):
        if path.is_dir():
            linux.mount("hidden", str(path), "tmpfs", _QUIET, "size=4k,mode=555").make()


def _fill_etc(target: Path) -> list[str]:
    """Fill the parts of /etc that rooms copy and those that they bind; return the names of the latter."""
    etc = Path("/etc")
    copied, fixed = target / "copied", target / "fixed"
    copied.mkdir(parents=True)
    fixed.mkdir()
    for name in _ETC.split():
        with suppress(OSError):  # missing or unreadable on the host
            found = etc / name
            if found.is_dir():
                shutil.copytree(found, copied / name, symlinks=True)
            else:
                shutil.copyfile(found, copied / name)
    for name, content in _MADE.items():
        (copied / name).write_text(content)
    names = _ETC_FIXED.split() + [path.name for path in etc.glob("python3.*")]
    for name in names:
        if name == "ssl":  # the rest may contain keys
            for part in ("certs", "openssl.cnf"):
                _provide(etc / name / part, fixed / name / part)
        else:
            _provide(etc / name, fixed / name)
    (fixed / "ld.so.preload").touch()  # empty and read-only: its entries load into every program
    return [path.name for path in fixed.iterdir()]


def _provide(source: Path, target: Path) -> None:
    """Bind a folder, or copy a file: the host may replace it, and what is deleted cannot be mounted."""
    if source.is_dir():
        confine.bind(source, target)
    elif source.exists():
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, target)


def _make_devices(target: Path) -> None:
    target.mkdir()
    for name in _DEVICES:
        confine.bind(Path("/dev") / name, target / name)
    for name, link in _DEVICE_LINKS.items():
        (target / name).symlink_to(link)
    (target / "shm").mkdir()


# ── a room ────────────────────────────────────────────────────────────────────────────────────────


def furnish(base: Base, storage_mb: int, *, own_proc: bool, packages: bool = False) -> None:
    """Build a room's root in a new mount namespace, and enter it.

    Args:
        packages: whether to mount this project's installed modules, read-only.

    Raises:
        OSError: this machine does not allow it, or has no folder for the modules.
    """
    if packages and base.packages_at is None:
        raise OSError("the room's interpreter is not the one that runs this project")
    size = f"size={storage_mb}m,nr_inodes=400k,mode=755"
    linux.mount("room", PLACE, "tmpfs", _QUIET, size).make()
    os.chdir(PLACE)
    bind = linux.MS_BIND | linux.MS_REC
    for name in base.system:
        os.mkdir(name)
        linux.mount(f"{BASE}/{name}", name, "", bind).make()
    for name, mode in FOLDERS.items():
        os.mkdir(name)
        os.chmod(name, mode)
    if packages and base.packages_at is not None:
        linux.mount(f"{BASE}/{PACKAGES}", base.packages_at, "", bind).make()
        if PYTHON in base.system:  # the loader looks for its shared library at the installed path
            own = sys.base_prefix.lstrip("/")
            os.makedirs(own)
            linux.mount(f"{BASE}/{PYTHON}", own, "", bind).make()
    if base.agent:
        os.makedirs(AGENT, exist_ok=True)
        linux.mount(f"{BASE}/agent", AGENT, "", bind).make()
    os.mkdir("dev")
    linux.mount(f"{BASE}/dev", "dev", "", bind).make()
    linux.mount("shm", "dev/shm", "tmpfs", _QUIET, "size=256m,mode=1777").make()
    if own_proc:
        linux.mount(f"{BASE}/proc", "proc", "", bind).make()
    os.mkdir("etc")
    linux.mount("etc", "etc", "tmpfs", _QUIET, "size=64m,mode=755").make()
    shutil.copytree(f"{BASE}/etc/copied", "etc", dirs_exist_ok=True)
    for name in base.fixed:
        source, target = f"{BASE}/etc/fixed/{name}", f"etc/{name}"
        if os.path.isdir(source):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        linux.mount(source, target, "", bind).make()
    os.symlink("/proc/mounts", "etc/mtab")
    linux.pivot_root(".", "old")
    os.chdir("/")
    linux.unmount("/old")
    os.rmdir("/old")


def mount_proc() -> None:
    """Mount /proc with this PID namespace's processes, and the machine facts that ordinary tools need.

    Raises:
        OSError: the kernel does not allow it here.
    """
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC | linux.MS_RDONLY
    linux.mount("proc", confine.PROC, "proc", flags).make()
    for name in _PROC_HIDDEN.split():
        with suppress(FileNotFoundError):
            linux.mount("/dev/null", f"{confine.PROC}/{name}", "", linux.MS_BIND).make()


def clear_ways(protected: Sequence[str]) -> None:
    """Remove links into protected folders, and files above them that control test collection.

    Otherwise a verifier would write through the candidate's links, or follow its settings. Call it while
    no process of the room lives.

    Raises:
        OSError: the candidate left a folder that cannot be searched, or too much to search.
    """
    until = time.monotonic() + CLEARING_S
    for name in _ABOVE_TESTS.split():
        with suppress(OSError):
            os.unlink(f"/{name}")
    closed = {*_SYSTEM, PYTHON, "dev", "proc", "sys"}
    tops = [top.path for top in os.scandir("/") if top.name not in closed]
    for path in (*tops, "/dev/shm"):
        _clear_way(path, protected)
        _clear_ways_below(path, protected, until)


def _clear_ways_below(path: str, protected: Sequence[str], until: float) -> None:
    """Search the path's own file system only: the host's parts of /etc contain no candidate's link."""
    pending = [path]
    while pending:
        folder = pending.pop()
        if os.path.islink(folder) or not os.path.isdir(folder):
            continue
        device = os.lstat(folder).st_dev
        for entry in os.scandir(folder):
            if time.monotonic() > until:
                raise TimeoutError(f"links below {path} cannot be searched within {CLEARING_S:g} s")
            if entry.is_symlink():
                _clear_way(entry.path, protected)
            elif entry.is_dir() and entry.stat(follow_symlinks=False).st_dev == device:
                pending.append(entry.path)


def _clear_way(path: str, protected: Sequence[str]) -> None:
    if not os.path.islink(path):
        return
    try:
        target = str(in_root(Path("/"), path))
    except OSError:  # the verifier cannot follow it either, or it leads out of the room
        target = protected[0]
    if any(
        f"{target}/".startswith(f"{one}/") or f"{one}/".startswith(f"{target}/")
        for one in protected
    ):
        with suppress(OSError):  # one of the host's links, which are read-only
            os.unlink(path)


def fresh(path: str, size: str, mode: int) -> None:
    """Mount a new, empty file system at a path, whatever is there.

    Call it while no process of the room lives, since one could change the path meanwhile.

    Raises:
        OSError: it cannot be mounted.
    """
    at = ""
    for part in Path(path).parts[1:]:
        at = f"{at}/{part}"
        with suppress(FileNotFoundError):
            if os.path.islink(at) or not os.path.isdir(at):
                os.unlink(at)
        os.makedirs(at, exist_ok=True)
    linux.mount("fresh", path, "tmpfs", _QUIET, f"size={size},mode={mode:o}").make()
