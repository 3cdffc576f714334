"""The host's end of a zygote for one language other than Python."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path

from coding_model_project.errors import ConfigError, SandboxError
from coding_model_project.isolation.confine import Tier
from coding_model_project.isolation.proc_files import longest_s
from coding_model_project.sandbox.embedded.languages import toolchains
from coding_model_project.sandbox.embedded.languages.build import (
    Binaries,
    Toolchain,
    cache_folder,
    last_words,
)
from coding_model_project.sandbox.embedded.slot import COMPILE_S, Slot, ZygoteLost
from coding_model_project.sandbox.languages import Language
from coding_model_project.types import Execution, Limits, Program, Status, Stdin

_STAGES_S = 3 * longest_s(COMPILE_S)
"""Wall seconds for all stages together; each has its own limits."""


_LOADERS = [str(path.resolve()) for path in map(Path, ("/lib", "/lib64")) if path.exists()]
"""Folders in which the kernel finds the dynamic loader, with links resolved."""


_LIMITS = Limits(cpu_s=10.0, wall_s=30.0, memory_mb=512, output_kb=64)


def _never(_index: int, _execution: Execution) -> bool:
    return False


class ForeignSlot(Slot):
    """A runner of programs in one language, one after another."""

    _MODULE = "coding_model_project.sandbox.embedded.languages.native"

    def __init__(self, tier: Tier, python: str, language: Language, toolchain: Toolchain) -> None:
        super().__init__(tier, python, compiled_loop=False)
        self._language = language
        self._toolchain = toolchain
        self._binaries = Binaries(cache_folder() / "binaries")
        self._folder: str | None = None

    def start(self) -> None:
        """Start the zygote, after preparing the toolchain's files on disk, and run a test program.

        If that trusted program works, later failures are the programs' own.

        Raises:
            ConfigError: this machine cannot reliably end such programs, or make the toolchain's files.
            SandboxError: the zygote does not start, or the test program fails.
        """
        try:
            self._toolchain.prepare()
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            if why := self._toolchain.unprepared:
                raise ConfigError(
                    f"{self._language} programs do not run here: {why}: {last_words(error)}"
                ) from error
        if self._tier is not Tier.namespaces and self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="coding-stages-")
        super().start()
        executions: list[Execution] = []
        hello = self._language.hello
        self._run(Program(source=hello), hello.encode(), [Stdin("")], _LIMITS, executions, _never)
        (tried,) = executions
        if tried.status is not Status.finished or tried.stdout.strip() != "hello":
            self.stop()
            raise SandboxError(
                f"{self._language} programs do not run at tier {self._tier}: {tried.status} "
                f"{tried.stderr_tail.strip()[-300:]}"
            )

    def stop(self) -> None:
        """Stop as `Slot.stop` does, and remove the folder of the stages."""
        super().stop()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _arguments(self) -> list[str]:
        setup = {
            "profile": self._toolchain.profile,
            "readable": [*_LOADERS, *self._toolchain.readable],
            "folder": self._folder,
        }
        return [json.dumps(setup)]

    def _begin(self, program: Program, source: bytes, limits: Limits) -> Execution | None:
        recipe = self._toolchain.recipe(limits, source)
        files = {**program.files, recipe.source: source}
        key = recipe.key(files)
        known = self._binaries.get(key) if recipe.product else None
        if known is not None:
            files = {**program.files, recipe.product: known}
        head = {
            **asdict(recipe),
            "limits": asdict(limits),
            "files": list(files),
            "sizes": [len(content) for content in files.values()],
            "made": known is not None,
        }
        self._send(head, b"".join(files.values()))
        head, product = self._receive(_STAGES_S)
        if "refused" in head:
            raise ConfigError(toolchains.refusal(self._language, head["refused"]))
        if "broken" in head:
            raise ZygoteLost(str(head["broken"]))
        if "done" in head:
            raise ZygoteLost(f"the process of the program ended with {head['done']}")
        if "compiled" in head:
            if recipe.product and known is None:
                self._binaries.put(key, product)
            return None
        self._ending = True
        code = head["exit"]
        killed = code == -signal.SIGKILL
        failed = Execution(
            status=Status.killed if killed else recipe.failure,
            stderr_tail=head["failed"],
            exit_code=code if code > 0 else None,
        )
        return self._checked(failed)
