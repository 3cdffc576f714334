"""An observer of what a verifier's processes execute, map and read, which detects the agent's code.

If the verifier starts an agent's program, that program is confined: it cannot reach /tests and
/logs/verifier, and may do anything else. Any other process is the verifier's. Agent code in it is a
reason to doubt the reward, and so is anything that cannot be distinguished from that.

A process's `oom_score_adj` records its owner. Children inherit it, and nothing in a room can write it.
The kernel kills all of these processes first anyway.
"""

from __future__ import annotations

import errno
import os
import signal
import struct
import time
from contextlib import suppress
from pathlib import Path

from coding_model_project.contained import in_root
from coding_model_project.harbor.rooms import confining, programs, shells
from coding_model_project.harbor.rooms.file_origins import TESTS, Found, Origin, Provenance
from coding_model_project.harbor.rooms.listener import Call, Listener, Unreadable
from coding_model_project.harbor.rooms.programs import Kind
from coding_model_project.harbor.rooms.room_processes import (
    AGENTS,
    GUARDED,
    MAX_SCRIPT_BYTES,
    VERIFIERS,
    RoomProcesses,
)

LOGS, MARK = "/logs/verifier", "/.verifier"
DROP = "agent"
"""File in `MARK`; a verifier's process that opens it loses access to /tests and /logs/verifier, and
belongs to the agent from then on."""

_READ_ONLY_ROOTS = ("/usr/", "/lib/", "/lib64/", "/python/")
_PROGRAM_FOLDERS = ("/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/python/bin")
_CWD = 0xFFFFFF9C
_MODULE_FOLDERS = (
    "/usr/lib/python3*",
    "/usr/lib/python3/*-packages",
    "/usr/local/lib/python3*/*-packages",
    "/python/lib/python3*",
    "/python/lib/python3*/site-packages",
)
_MAX_REASONS = 20
_FILE_CLOCK = 5
"""CLOCK_REALTIME_COARSE, the clock of file times."""


class Witness:
    """An observer of one verifier's run. Call `handle` for each call that waits at `listener`.

    Args:
        job: the verifier's first process.
        outputs: inodes of the pipes that only the log reads.
    """

    def __init__(
        self, listener: Listener, provenance: Provenance, job: int, outputs: set[int]
    ) -> None:
        self._listener, self._provenance = listener, provenance
        self._processes, self._job = RoomProcesses(listener, outputs), job
        self.reasons: list[str] = []
        self._guarded: set[int] = set()
        """Executed interpreters, not forked ones, that must exit through the interpreter's own end."""
        self._tainted: set[int] = set()
        self._opened: dict[int, str] = {}
        """Agent files that a shell opened in its last call, either as input or for commands."""
        self._compiled: set[str] = set()
        self._compiled_of: set[Origin] = set()
        self._copying: set[int] = set()
        """Processes that copy an agent's file."""
        self._logging: set[int] = set()
        """Processes that write to /logs/verifier."""
        self._unread: dict[str, int] = {}
        """Agent programs whose output nobody has read, with their start by the clock of files."""

    def handle(self) -> None:
        """Answer one call."""
        call = self._listener.receive()
        if call is None:
            return
        try:
            owner = self._processes.owner(call.pid)
            if owner != AGENTS and self._judge(call, owner):
                return
        except Unreadable as error:
            if call.pid != self._job or call.name != "execve":  # the job is ours until it executes
                self._doubt(f"a process cannot be watched: {error}")
        except OSError as error:  # the agent made a path unreadable
            self._doubt(f"a file cannot be read: {error}")
        self._listener.answer(call)

    @property
    def fd(self) -> int:
        """Descriptor that is readable when a call waits."""
        return self._listener.fd

    def end(self) -> None:
        """Record the last doubts when the verifier has ended."""
        os.close(self._listener.fd)
        for path in self._opened.values():
            self._doubt(f"the verifier's shell read {path}")
        for name in self._unread:
            self._doubt(f"the verifier read no output of {name}, at most its exit status")

    def _doubt(self, reason: str) -> None:
        if reason not in self.reasons and len(self.reasons) < _MAX_REASONS:
            self.reasons.append(reason)

    def _judge(self, call: Call, owner: int) -> bool:
        """Check a verifier's call, and return whether it is answered."""
        opened = self._opened.pop(call.pid, None)
        if opened is not None and not self._redirects(call, opened):
            self._doubt(f"the verifier's shell read {opened}")
        match call.name:
            case "execve":
                return self._execute(call, owner)
            case "open" | "openat" | "openat2":
                return self._open(call, owner)
            case "execveat":
                self._doubt("the verifier executed a program by its descriptor")
            case "mmap":
                self._map(call)
            case "connect":
                self._unread.clear()
            case "exit_group":
                self._exit(call)
                self._copying.discard(call.pid)
                self._logging.discard(call.pid)
            case _:
                pass
        return False

    # ── executions ────────────────────────────────────────────────────────────────────────────────

    def _execute(self, call: Call, owner: int) -> bool:
        pid = call.pid
        path = self._listener.path(pid, _CWD, call.arguments[0])
        words = self._listener.words(pid, call.arguments[1])
        found = self._provenance.find(path)
        if found.origin is Origin.missing:
            return False
        if pid in self._guarded:  # it becomes another program without the interpreter's own end
            self._exit(call)
        if owner != VERIFIERS:
            self._processes.mark(pid, VERIFIERS)
        if found.origin is Origin.new and self._is_compiled(found):
            if {Origin.agent, Origin.tests} <= self._compiled_of:
                self._doubt(f"{found.path} was compiled from the agent's and the verifier's files")
                return False
            if Origin.agent not in self._compiled_of:
                return False
        elif found.origin is Origin.new:
            self._doubt(f"the verifier executed {found.path}, which was created during its run")
            return False
        elif found.origin.trusted:
            return self._interpret(call, found, words[1:])
        return self._start(call, path, words[1:])

    def _interpret(self, call: Call, found: Found, words: list[str]) -> bool:
        """Check the code that a trusted program is about to run."""
        for _ in range(4):
            first = _first_line(found.path)
            if first is None:
                break
            name, *option = first
            words = [*option, found.path, *words]
            found = self._provenance.find(name)
            if not found.origin.trusted:
                self._doubt(f"{found.path} ran the verifier's {words[-1]}")
                return False
        name = os.path.basename(found.path)
        code = programs.code(name, words)
        is_shell = programs.kind(name) is Kind.shell
        for text in code.inline:
            if not self._provenance.literals.has(text):
                self._doubt(f"{name} ran a text that is not in the verifier's files")
            elif is_shell:
                self._scan(text, "a command")
        if is_shell:
            self._check_environment(call)
        if code.script is not None:
            return self._script(call, name, code.script, words, is_shell=is_shell)
        if code.module is not None:
            return self._module(call, code.module, words)
        return self._from_input(call, name, words) if code.stdin else False

    def _script(
        self, call: Call, name: str, script: str, words: list[str], *, is_shell: bool
    ) -> bool:
        found = self._at(call, script)
        if found.origin is Origin.agent:
            return self._start(call, script, [w for w in words if w != script])
        if found.origin is Origin.new:
            self._doubt(f"{name} ran {found.path}, which was created during the verifier's run")
        elif is_shell and found.origin in (Origin.tests, Origin.image):
            self._scan_file(found.path)
        return False

    def _module(self, call: Call, module: str, words: list[str]) -> bool:
        """Check `python -m`: the agent's module if it is first on the path, and no tool has its name."""
        top = module.partition(".")[0]
        for name in (f"{top}.py", f"{top}/__main__.py", f"{top}/__init__.py"):
            if self._at(call, name).origin.trusted:
                continue
            if any(_has(folder, top) for folder in _MODULE_FOLDERS) or programs.is_runner(top):
                self._doubt(f"the agent's {name} shadows a module of the image")
                return False
            if self._at(call, name).origin is Origin.agent and "__init__" not in name:
                return self._start(call, top, [w for w in words if w not in ("-m", module)])
        return False

    def _from_input(self, call: Call, name: str, words: list[str]) -> bool:
        """Check an interpreter that reads its program from standard input."""
        link = self._listener.link(call.pid, "fd/0")
        if link.startswith("/") and not link.endswith(" (deleted)"):
            found = self._provenance.find(link)
            if found.origin is Origin.agent:
                return self._start(call, link, words)
            if found.origin is Origin.new:
                self._doubt(f"{name} ran {link}, which was created during the verifier's run")
        elif not self._provenance.literals.is_script(self._processes.waiting_input(call.pid)):
            self._doubt(f"{name} ran code from its standard input")
        return False

    def _start(self, call: Call, path: str, words: list[str]) -> bool:
        """Start an agent's program confined, and record a doubt if it may do more than it should."""
        name = os.path.basename(path)
        if programs.is_runner(name) or any(os.path.exists(f"{f}/{name}") for f in _PROGRAM_FOLDERS):
            self._doubt(f"the agent's {path} replaces a tool")
            return False
        given = any(self._is_test(call, word) for word in words)
        if given:
            self._doubt(f"{path} received a file of {TESTS}")
        if any(link.startswith(f"{LOGS}/reward") for link in self._processes.links(call.pid)):
            self._doubt(f"{path} received the reward file to write to")
        unheard = not self._processes.is_heard(call.pid)
        try:
            done = confining.execute(
                self._listener,
                call,
                lambda: self._processes.mark(call.pid, AGENTS),
                reading_tests=given,
            )
        except confining.NotConfined as error:
            self._doubt(f"{path} could not be confined: {error}")
            return False
        if done and unheard:
            self._unread.setdefault(path, time.clock_gettime_ns(_FILE_CLOCK))
        return True

    def _is_test(self, call: Call, word: str) -> bool:
        path = os.path.normpath(self._absolute(call, word.rpartition("=")[2]))
        return f"{path}/".startswith(f"{TESTS}/") and os.path.exists(path)

    def _is_compiled(self, found: Found) -> bool:
        return any(self._provenance.find(one).inode == found.inode for one in self._compiled)

    def _check_environment(self, call: Call) -> None:
        for entry in self._listener.words(call.pid, call.arguments[2]):
            name, _, value = entry.partition("=")
            if name.startswith("BASH_FUNC_") or (name.startswith("PS") and "$(" in value):
                self._doubt(f"a shell received code in {name}")

    def _scan_file(self, path: str) -> None:
        with open(path, "rb") as file:
            self._scan(file.read(MAX_SCRIPT_BYTES).decode("utf-8", "replace"), path)

    def _scan(self, text: str, path: str) -> None:
        construct = shells.runs_data(text)
        if construct is not None:
            self._doubt(f"{path} may run data as commands: {construct}")

    # ── files ─────────────────────────────────────────────────────────────────────────────────────

    def _open(self, call: Call, owner: int) -> bool:
        folder, address, flags = call.arguments[0], call.arguments[1], call.arguments[2]
        if call.name == "open":
            folder, address, flags = _CWD, call.arguments[0], call.arguments[1]
        elif call.name == "openat2":
            (flags,) = struct.unpack("=Q", self._listener.memory(call.pid, flags, 8))
        path = self._listener.path(call.pid, folder, address)
        if path == f"{MARK}/{DROP}":
            return self._drop(call)
        if path.startswith(f"{MARK}/"):
            self._listener.answer(call, self._reported(call.pid, path.removeprefix(f"{MARK}/")))
            return True
        if flags & (os.O_PATH | os.O_DIRECTORY):
            return False
        if path.startswith(_READ_ONLY_ROOTS) and "/../" not in path:
            return False
        kind = programs.kind(self._processes.program(call.pid))
        if flags & os.O_ACCMODE != os.O_RDONLY and kind is Kind.compiler:
            self._compiled.add(path)
        if flags & os.O_ACCMODE != os.O_RDONLY:
            self._write(call.pid, path)
        if flags & os.O_ACCMODE == os.O_WRONLY:
            return False
        found = self._provenance.find(path)
        if found.origin is Origin.missing:
            return False
        if not found.origin.trusted and programs.copies(self._processes.program(call.pid)):
            self._copies(call.pid, self._copying, self._logging)
        self._read(call, found, kind, guarded=owner == GUARDED)
        return False

    def _read(self, call: Call, found: Found, kind: Kind, *, guarded: bool) -> None:
        if not found.origin.trusted:
            self._unread = {
                name: since for name, since in self._unread.items() if found.changed_ns < since
            }
        if guarded or kind is Kind.tool:
            return
        if kind is Kind.compiler:
            if found.path not in self._compiled:
                self._compiled_of.add(Origin.tests if found.origin is Origin.new else found.origin)
                if found.origin is Origin.new:
                    self._compiled_of.add(Origin.agent)
        elif found.origin.trusted:
            if kind is Kind.shell and found.origin in (Origin.tests, Origin.image):
                self._scan_read(found.path)
        elif kind is Kind.shell:
            self._opened[call.pid] = found.path
        else:
            self._doubt(f"the verifier's {self._processes.program(call.pid)} read {found.path}")

    def _write(self, pid: int, path: str) -> None:
        """Check a file that the verifier writes: the rewards must not be a copy of an agent's file."""
        plain = os.path.normpath(path)
        try:
            real = str(in_root(Path("/"), path))
        except OSError:
            self._doubt(f"{plain} was written through links that cannot be followed")
            return
        for folder in (f"{LOGS}/", f"{TESTS}/"):
            if real.startswith(folder) and not plain.startswith(folder):
                self._doubt(f"{real} was written through {plain}, which is a link")
        if real.startswith(f"{LOGS}/"):
            self._copies(pid, self._logging, self._copying)

    def _copies(self, pid: int, one: set[int], other: set[int]) -> None:
        one.add(pid)
        if pid in other:
            self._doubt(f"an agent's file was copied to {LOGS}")

    def _scan_read(self, path: str) -> None:
        if path.endswith((".sh", ".bash")) or _first_line(path) is not None:
            self._scan_file(path)

    def _redirects(self, call: Call, opened: str) -> bool:
        """Return whether the file that a shell just opened becomes standard input, and so is data."""
        old, new = call.arguments[0], call.arguments[1]
        if call.name not in ("dup2", "dup3") or new != 0 or old > 9:
            return False
        return self._provenance.find(self._listener.link(call.pid, f"fd/{old}")).path == opened

    def _map(self, call: Call) -> None:
        path = self._listener.link(call.pid, f"fd/{call.arguments[4] & 0xFFFFFFFF}")
        if path.endswith(" (deleted)") or not self._provenance.find(path).origin.trusted:
            self._doubt(f"a verifier's process loaded {path} as code")

    # ── interpreters with a guard ─────────────────────────────────────────────────────────────────

    def _reported(self, pid: int, message: str) -> int:
        """Handle a message of the guard in a Python, and return an error number as the answer."""
        kind, _, path = message.partition(":")
        if kind == "guarded":
            self._processes.mark(pid, GUARDED)
            self._guarded.add(pid)
        elif kind == "ended":
            self._guarded.discard(pid)
        elif kind == "trusted":
            return errno.ENOENT if self._provenance.find(path).origin.trusted else errno.EPERM
        elif kind in ("code", "settings"):
            found = self._provenance.find(path)
            if not found.origin.trusted:
                verb = "ran" if kind == "code" else "followed settings in"
                self._taint(pid, f"the verifier's Python {verb} {found.path}")
        else:
            self._taint(pid, f"the verifier's Python {path}")
        return errno.ENOENT

    def _drop(self, call: Call) -> bool:
        """Hand a verifier's process that is about to run the agent's code over to the agent."""
        self._guarded.discard(call.pid)
        try:
            return confining.execute(
                self._listener,
                call,
                lambda: self._processes.mark(call.pid, AGENTS),
                answer=errno.ENOENT,
            )
        except confining.NotConfined as error:
            self._doubt(f"a process that runs the agent's code could not be confined: {error}")
            return False

    def _taint(self, pid: int, reason: str) -> None:
        self._doubt(reason)
        self._tainted.add(pid)

    def _exit(self, call: Call) -> None:
        """Handle an interpreter that skips its own end: by `os._exit`, or by becoming another program."""
        pid = self._processes.group(call.pid)
        if pid not in self._guarded:
            self._tainted.discard(pid)
            return
        self._guarded.discard(pid)
        if pid in self._tainted:
            self._tainted.discard(pid)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        elif call.name == "execve" or call.arguments[0] == 0:
            self._doubt("the verifier's Python skipped the interpreter's own end")

    # ── paths ─────────────────────────────────────────────────────────────────────────────────────

    def _absolute(self, call: Call, path: str) -> str:
        return path if path.startswith("/") else f"{self._listener.link(call.pid, 'cwd')}/{path}"

    def _at(self, call: Call, path: str) -> Found:
        return self._provenance.find(self._absolute(call, path))


def _first_line(path: str) -> list[str] | None:
    """Return a script's interpreter and its argument; None for other files."""
    with suppress(OSError), open(path, "rb") as file:
        line = file.readline(256)
        if line.startswith(b"#!"):
            return os.fsdecode(line[2:]).strip().split(None, 1) or None
    return None


def _has(folder: str, module: str) -> bool:
    return any(any(Path("/").glob(f"{folder[1:]}/{name}")) for name in (f"{module}.py", module))
