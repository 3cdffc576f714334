"""gcc and g++: their stages as single commands, a precompiled header, and a cache of their products.

They themselves only start the compiler, the assembler and the linker. These are executed one by one
instead, each confined without the right to start processes. Programs are linked statically, so they need
no files to run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from coding_model_project.sandbox.embedded.languages import tools
from coding_model_project.sandbox.embedded.languages.binaries import Binaries, cache_folder
from coding_model_project.sandbox.embedded.languages.build import Recipe
from coding_model_project.sandbox.embedded.languages.kept import make_once
from coding_model_project.sandbox.embedded.launch import Profile
from coding_model_project.types import Limits, Status

TESTLIB = "CODING_TESTLIB"
"""Environment variable with the path of testlib.h, which checkers of several data sets include."""

_ASSEMBLY, _OBJECT, _PRODUCT = "main.s", "main.o", "program"
_HEADER = "bits/stdc++.h"
_COMPILING = ("-O2", "-w", "-fmax-errors=5", "-fdiagnostics-color=never", "-DONLINE_JUDGE")
_LINKING = ("-static", "-s", "-fno-use-linker-plugin")
_COMPILERS = {
    "c": ("gcc", "-std=gnu17", "main.c", ("libc.a", "libm.a")),
    "cpp": ("g++", "-std=gnu++17", "main.cpp", ("libc.a", "libstdc++.a", "libm.a")),
}
"""Compiler, standard, file name, and the static libraries that programs are linked with."""
_HEADER_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gcc:
    """The `toolchains.Toolchain` of a gcc or g++ that links statically."""

    version: str
    source: str
    stages: list[list[str]]
    readable: list[str]
    headers: Path
    """A cache folder that is searched first, with the precompiled header and testlib.h."""
    maker: str
    """A digest of compiler, options and headers."""
    binaries: Binaries
    profile: Profile = Profile.native

    def prepare(self) -> None:
        """Precompile C++'s header, once for all processes; if that fails, programs compile slower."""
        if self.source == "main.c":
            return
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            make_once(self.headers, _HEADER, _forward)
            make_once(self.headers, f"{_HEADER}.gch", _precompile)

    def recipe(self, limits: Limits, source: bytes) -> Recipe:
        return Recipe(
            source=self.source,
            stages=self.stages,
            failure=Status.compile_error,
            product=_PRODUCT,
            run=[_PRODUCT],
            maker=self.maker,
        )


@lru_cache
def find(language: str) -> Gcc | str:
    """Return the gcc ("c") or g++ ("cpp") of this machine, or what is missing."""
    name, standard, source, libraries = _COMPILERS[language]
    kind = "c" if language == "c" else "c++"
    missing = f"{name} with static libraries, as and ld are not installed"
    compiler, options = shutil.which(name), (*_COMPILING, standard)
    try:
        if compiler is None or not all(_finds(name, library) for library in libraries):
            return missing
        version = tools.output(compiler, "--version").splitlines()[0]
        folders = _include_folders(
            tools.output(compiler, "-E", "-v", "-x", kind, os.devnull, errors=True)
        )
        testlib = os.environ.get(TESTLIB, "")
        content = Path(testlib).read_bytes() if testlib and language == "cpp" else b""
        maker = hashlib.sha256(repr((version, tools.stamp(compiler), options, _LINKING)).encode())
        maker.update(content)
        cache = cache_folder()
        headers = cache / f"headers-{maker.hexdigest()[:16]}"
        headers.mkdir(parents=True, exist_ok=True)
        if content:
            (headers / "testlib.h").write_bytes(content)
        given = [*options, *_LINKING, f"-I{headers}", "-###", source, "-o", _PRODUCT]
        # C's mathematics are a library of its own, and programs do not say so.
        given += ["-lm"] if language == "c" else []
        stages = _stages(name, tools.output(compiler, *given, errors=True))
    except (OSError, subprocess.SubprocessError, ValueError):
        return missing
    return Gcc(
        version=version,
        source=source,
        stages=stages,
        readable=[
            *folders,
            str(Path(stages[0][0]).resolve().parent),
            *tools.library_folders(stages[-1]),
            *(s[0] for s in stages),
            str(headers),
        ],
        headers=headers,
        maker=maker.hexdigest(),
        binaries=Binaries(cache / "binaries"),
    )


def has_testlib() -> bool:
    """Return whether checkers that include testlib.h can be compiled."""
    return Path(os.environ.get(TESTLIB, "")).is_file()


def _stages(compiler: str, printed: str) -> list[list[str]]:
    """Return the commands that a compiler prints with `-###`, with our file names, and the linker without
    its wrapper.

    Raises:
        ValueError: they are not the three known commands.
    """
    commands = [shlex.split(line) for line in printed.splitlines() if line.startswith(" ")]
    compile_, assemble, link = commands
    names = {
        compile_[compile_.index("-o") + 1]: _ASSEMBLY,
        assemble[assemble.index("-o") + 1]: _OBJECT,
    }
    assemble[0], link[0] = _tool(compiler, "as"), _tool(compiler, "ld")
    return [[names.get(word, word) for word in command] for command in commands]


def _tool(compiler: str, name: str) -> str:
    """Return the path of one of a compiler's tools; raise ValueError if it is missing."""
    found = shutil.which(tools.output(compiler, f"-print-prog-name={name}").strip())
    if found is None:
        raise ValueError(f"no {name}")
    return str(Path(found).resolve())


def _finds(compiler: str, library: str) -> bool:
    return Path(tools.output(compiler, f"-print-file-name={library}").strip()).is_absolute()


def _include_folders(printed: str) -> list[str]:
    _, _, rest = printed.partition("#include <...> search starts here:")
    listed, _, _ = rest.partition("End of search list.")
    return list(
        dict.fromkeys(
            str(Path(line.strip()).resolve()) for line in listed.split("\n") if line.strip()
        )
    )


def _forward(target: Path) -> None:
    """Write a header that forwards to the system's, for a second include, which cannot be precompiled."""
    partial = target.with_name(f".{target.name}")
    partial.write_text(f"#include_next <{_HEADER}>\n")
    partial.replace(target)


def _precompile(target: Path) -> None:
    """Precompile the system's own header: trusted work, not confined."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        source, made = Path(folder) / "all.h", Path(folder) / "made.gch"
        source.write_text(f"#include <{_HEADER}>\n")
        command = [
            "g++",
            *_COMPILING,
            "-std=gnu++17",
            "-x",
            "c++-header",
            str(source),
            "-o",
            str(made),
        ]
        subprocess.run(command, capture_output=True, timeout=_HEADER_S, check=True)
        made.replace(target)
