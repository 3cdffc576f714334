"""The host's side: a pool of zygotes behind the `Sandbox` protocol.

It has the strongest tier that this machine allows, which confining a program in each shows.
"""

from __future__ import annotations

import asyncio
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import PurePosixPath
from typing import Literal, Self

from coding_model_project import contained
from coding_model_project.control_groups import usable_cores
from coding_model_project.errors import ConfigError, DataError, OverloadError, SandboxError
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox import languages
from coding_model_project.sandbox.base import StopWhen
from coding_model_project.sandbox.embedded.languages import toolchains
from coding_model_project.sandbox.embedded.languages.foreign import ForeignSlot
from coding_model_project.sandbox.embedded.slot import Slot, ZygoteLost
from coding_model_project.types import (
    Asserts,
    Call,
    Execution,
    Input,
    Limits,
    Program,
    Status,
    Stdin,
)

_ATTEMPTS = 2
_PATH_MAX = 1000
"""Most bytes of a component of a file's path, by the file system's limit, and of the whole path."""
_OLDEST_PYTHON = (3, 11)
_PRINT_VERSION = (
    "import platform; print(platform.python_implementation(), platform.python_version())"
)
_CPYTHON = re.compile(r"CPython (\d+)\.(\d+)\S*")
_IMPORT_S = 60.0
_NOT_STARTED = "the sandbox is not started; use it as `async with`"


class EmbeddedSandbox:
    """A sandbox that runs Python programs in processes forked from warm, confined interpreters, and
    programs in other `toolchains` in equally confined processes.

    Args:
        workers: programs that run at the same time; default: one per CPU core this process may use.
        min_tier: refuse to start with weaker isolation (`confine.Tier`).
        tier: use exactly this tier; default: the strongest that works here.
        preload: modules imported once and then available to every test at no cost, such as "numpy".
        python: the interpreter that programs run in; default: this process's.
        compiled_loop: run tests with `fork_server` if there is a C compiler.

    Each worker is a thread whose only state is the zygote it is using, so a sandbox can be used from any
    event loop, in any thread. `stop_when` is called in such a thread.
    """

    shares_calls: Literal[True] = True

    def __init__(
        self,
        workers: int | None = None,
        min_tier: str = "seccomp",
        tier: str | None = None,
        preload: Sequence[str] = (),
        *,
        python: str = sys.executable,
        compiled_loop: bool = True,
    ) -> None:
        self._n = workers or usable_cores()
        self._min_tier, self._exact_tier = _tier(min_tier), _tier(tier) if tier else None
        self._preload, self._python, self._compiled_loop = tuple(preload), python, compiled_loop
        self._threads: ThreadPoolExecutor | None = None
        self._slots: list[Slot] = []
        self._foreign: dict[tuple[Slot, str], ForeignSlot] = {}
        """Substitutes of slots for programs in other languages, made on demand."""
        self._free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        self._tier: Tier | None = None
        self._python_version = ""
        self._preloaded: tuple[str, ...] = ()
        self._closing = threading.Event()

    @property
    def tier(self) -> Tier:
        """The isolation tier of programs, known once started.

        Raises:
            SandboxError: the sandbox is not started.
        """
        if self._tier is None:
            raise SandboxError(_NOT_STARTED)
        return self._tier

    @property
    def identity(self) -> str:
        """Back end, tier, interpreter and preloaded modules, known once started.

        Example: "embedded/namespaces/cpython-3.11+numpy-2.1.0".

        Raises:
            SandboxError: the sandbox is not started.
        """
        return "+".join([f"embedded/{self.tier}/cpython-{self._python_version}", *self._preloaded])

    async def __aenter__(self) -> Self:
        """Start all zygotes.

        Raises:
            SandboxError: the tier does not work here, or no zygote starts.
            ConfigError: programs cannot run in the interpreter, or a module to preload cannot be
                imported.
        """
        self._closing.clear()
        self._threads = ThreadPoolExecutor(self._n, "sandbox")
        # A thread that lives as long as the sandbox. It stops it too: while Python ends, none can start.
        self._keeper = ThreadPoolExecutor(1, "sandbox")
        try:
            await asyncio.get_running_loop().run_in_executor(self._keeper, self._start)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    def _start(self) -> None:
        _check_python(self._python, self._preload)
        if self._exact_tier is None:
            tier = strongest(self._min_tier, self._python, self._preload)
        else:
            tier = self._exact_tier
            if not tier.at_least(self._min_tier):
                raise ConfigError(f"tier={tier} is below min_tier={self._min_tier}")
            if problem := why_not(tier, self._python, self._preload):
                raise SandboxError(f"tier {tier} does not work here: {problem}")
        make = partial(
            Slot,
            tier,
            self._python,
            self._preload,
            compiled_loop=self._compiled_loop,
        )
        self._slots = [make() for _ in range(self._n)]
        for slot in self._slots:
            slot.start()  # in this thread, with which the zygote would end
            self._free.put(slot)
        self._python_version = ".".join(self._slots[0].python_version.split(".")[:2])
        self._preloaded = self._slots[0].preloaded
        self._tier = tier

    async def __aexit__(self, *_: object) -> None:
        """Stop every process this sandbox started, runs in progress included."""
        self._closing.set()
        threads, self._threads = self._threads, None
        if threads is None:
            return
        for slot in [*self._slots, *self._foreign.values()]:
            slot.interrupt()
        await asyncio.get_running_loop().run_in_executor(self._keeper, self._stop, threads)
        self._keeper.shutdown(wait=False)
        self._slots, self._foreign, self._free = [], {}, queue.SimpleQueue()

    def _stop(self, threads: ThreadPoolExecutor) -> None:
        threads.shutdown(wait=True, cancel_futures=True)
        for slot in [*self._slots, *self._foreign.values()]:
            slot.stop()

    async def run(
        self,
        program: Program,
        inputs: Sequence[Input],
        limits: Limits,
        *,
        stop_when: StopWhen | None = None,
    ) -> list[Execution]:
        """Run a program as `Sandbox.run` does.

        Raises:
            SandboxError: the sandbox is not started, or failed after a retry.
            OverloadError: the machine ended the program; alone, it may run.
            ConfigError: the language is not supported here, or files at a tier that has none.
            DataError: tests that are not Python source, calls into another language, or a file outside
                the working directory.
        """
        if self._threads is None:
            raise SandboxError(_NOT_STARTED)
        self._check(program, inputs)
        if not inputs:
            return []
        cancelled = threading.Event()

        def stop(index: int, execution: Execution) -> bool:
            return cancelled.is_set() or (stop_when is not None and stop_when(index, execution))

        try:
            running = asyncio.get_running_loop().run_in_executor(
                self._threads, self._run, program, inputs, limits, stop
            )
        except RuntimeError as error:  # the threads are being shut down
            raise SandboxError("the sandbox is closed") from error
        try:
            return await running
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def _check(self, program: Program, inputs: Sequence[Input]) -> None:
        if program.language != "python":
            toolchains.toolchain(program.language, self.tier)
        for given in inputs:
            if program.language != "python" and isinstance(given, Call | Asserts):
                kind = type(given).__name__
                raise DataError(f"{kind} inputs are for python, not {program.language!r}")
        check_contents(program, inputs, self.tier)

    def _run(
        self, program: Program, inputs: Sequence[Input], limits: Limits, stop: StopWhen
    ) -> list[Execution]:
        """Run on a free slot in a worker's thread; retry once if the zygote is lost."""
        slot = self._free.get()
        executions: list[Execution] = []
        failure: ZygoteLost | None = None
        kind = SandboxError
        try:
            use = slot if program.language == "python" else self._foreign_slot(slot, program)
            for _ in range(_ATTEMPTS):
                if self._closing.is_set():
                    break
                try:
                    use.run(program, inputs, limits, executions, stop)
                    return executions
                except ZygoteLost as error:
                    failure = error
                    if use.saw_oom_kill():
                        kind = OverloadError
        finally:
            self._free.put(slot)
        if self._closing.is_set():
            raise SandboxError("the sandbox was closed during the run")
        raise kind(f"the sandbox failed {_ATTEMPTS} times to run a program: {failure}")

    def _foreign_slot(self, slot: Slot, program: Program) -> Slot:
        """Return the slot's substitute for the program's language; a slot and its substitutes run one
        program at a time."""
        chain = toolchains.toolchain(program.language, self.tier)
        language = languages.named(program.language)
        made = ForeignSlot(self.tier, self._python, language, chain)
        return self._foreign.setdefault((slot, language.name), made)


def _check_paths(names: Iterable[str]) -> None:
    """Check that files can be written into a folder.

    Raises:
        DataError: a file cannot, and why.
    """
    paths = {name: PurePosixPath(name) for name in names}
    folders = {folder for path in paths.values() for folder in path.parents}
    for name, path in paths.items():
        _check_text(name, "a file name is")
        contained.relative("" if name.endswith("/") else str(path))  # `./a` is the same file as `a`
        if len(name.encode()) > _PATH_MAX:
            raise DataError(f"the file name {name[:40]!r}… is too long: {len(name)} characters")
        if path in folders:
            raise DataError(f"{name!r} is both a file and the folder of another")


def check_contents(program: Program, inputs: Sequence[Input], tier: str) -> None:
    """Check that a process of this tier can take a program and its inputs.

    Raises:
        ConfigError: files at a tier that has none.
        DataError: tests that are not valid Unicode, or a file that cannot be written.
    """
    for given in inputs:
        if isinstance(given, Asserts):
            _check_text(given.source, "the tests are")
    if program.files and tier != Tier.namespaces:
        raise ConfigError(
            f"programs with files need tier namespaces, but the sandbox has tier {tier}"
        )
    _check_paths(program.files)


def _check_text(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{what} not valid Unicode: {error}") from None


@lru_cache
def _check_python(path: str, preload: tuple[str, ...]) -> None:
    """Check that an interpreter can run this package and import the modules.

    Raises:
        ConfigError: it cannot, and why.
    """
    if path != sys.executable:
        version = _output_of(
            path, _PRINT_VERSION, f"coding.sandbox.python={path} is not Python"
        ).strip()
        if not (found := _CPYTHON.fullmatch(version)):
            raise ConfigError(
                f"coding.sandbox.python={path} is not CPython: its version is {version[:80]!r}"
            )
        if tuple(map(int, found.groups())) < _OLDEST_PYTHON:
            needed = ".".join(map(str, _OLDEST_PYTHON))
            raise ConfigError(
                f"coding.sandbox.python={path} is {version}; it must be {needed} or later"
            )
    for name in preload:
        if not all(part.isidentifier() for part in name.split(".")):
            raise ConfigError(f"coding.sandbox.preload: {name!r} is not a module name")
        _output_of(path, f"import {name}", f"coding.sandbox.preload: {path} cannot import {name}")


def _output_of(python: str, code: str, problem: str) -> str:
    command = [python, "-I", "-c", code]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_IMPORT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
        raise ConfigError(f"{problem}: {last}") from None
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise ConfigError(f"{problem}: {error}") from None
    return done.stdout


def _tier(name: str) -> Tier:
    try:
        return Tier(name)
    except ValueError:
        raise ConfigError(f"no tier {name!r}; expected one of {', '.join(Tier)}") from None


_LIMITS = Limits(cpu_s=5.0, wall_s=10.0, memory_mb=256, output_kb=64)

_ESCAPES = Program(
    source="""
import os, socket
attempts = {
    "network": lambda: socket.socket(),
    "processes": lambda: os.fork(),
    "host files": lambda: open("/etc/hostname").close() or os.listdir("/proc"),
    "writing": lambda: open("/usr/lib/.written", "w"),
    "attributes": lambda: os.chmod("/usr/lib", 0o755),
    "signals": lambda: os.kill(os.getppid() or 2, 0),
}
for name, attempt in attempts.items():
    try:
        attempt()
        print(name)
    except OSError:
        pass
"""
)
"""A program that prints the name of each forbidden action that succeeded."""


def strongest(minimum: Tier, python: str, preload: Sequence[str] = ()) -> Tier:
    """Return the strongest available tier.

    Raises:
        SandboxError: none is as strong as `minimum`; names what each lacks, and the remedy.
    """
    missing = []
    for tier in reversed(Tier):
        if not tier.at_least(minimum):
            break
        problem = why_not(tier, python, tuple(preload))
        if problem is None:
            return tier
        missing.append(f"{tier}: {problem}")
    raise SandboxError(
        f"no sandbox tier at or above {minimum} works here ({'; '.join(missing)}); allow user"
        " namespaces or use a kernel ≥ 5.13 with Landlock, or accept a lower min_tier"
        " (coding.sandbox.min_tier)"
    )


@lru_cache
def why_not(tier: Tier, python: str, preload: tuple[str, ...] = ()) -> str | None:
    """Return why a tier does not work here, or None if it works; starts and stops a zygote."""
    slot = Slot(tier, python, preload)
    executions: list[Execution] = []
    try:
        slot.run(_ESCAPES, [Stdin("")], _LIMITS, executions, lambda _index, _execution: False)
    except (SandboxError, ZygoteLost) as error:
        return str(error)
    finally:
        slot.stop()
    (answer,) = executions
    if answer.status is not Status.finished:
        return f"the self-test ended with {answer.status}: {answer.stderr_tail[-200:]}"
    if answer.stdout and tier is not Tier.rlimit:
        return f"the self-test was not denied: {', '.join(answer.stdout.splitlines())}"
    return None
