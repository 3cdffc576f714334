"""gcc and g++: their stages as single commands, a precompiled header, and a cache of their products.

They themselves only start the compiler, the assembler and the linker. These are executed one by one
instead, each confined without the right to start processes. Programs are linked statically, so they need
no files to run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from coding_model_project.sandbox.embedded.languages import build
from coding_model_project.sandbox.embedded.languages.build import (
    Recipe,
    Toolchain,
    made_by,
    make_once,
)
from coding_model_project.types import Status

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


@lru_cache
def find(language: str) -> Toolchain | str:
    """Return the gcc ("c") or g++ ("cpp") of this machine that links statically, or what is missing."""
    name, standard, source, libraries = _COMPILERS[language]
    kind = "c" if language == "c" else "c++"
    missing = f"{name} with static libraries, as and ld are not installed"
    compiler, options = shutil.which(name), (*_COMPILING, standard)
    try:
        if compiler is None or not all(_finds(name, library) for library in libraries):
            return missing
        version = build.output(compiler, "--version").splitlines()[0]
        folders = _include_folders(
            build.output(compiler, "-E", "-v", "-x", kind, os.devnull, errors=True)
        )
        testlib = os.environ.get(TESTLIB, "")
        content = Path(testlib).read_bytes() if testlib and language == "cpp" else b""
        maker, headers = made_by(
            "headers", version, build.stamp(compiler), options, _LINKING, content
        )
        headers.mkdir(parents=True, exist_ok=True)
        if content:
            (headers / "testlib.h").write_bytes(content)
        given = [*options, *_LINKING, f"-I{headers}", source, "-o", _PRODUCT]
        # C's mathematics are a library of its own, and programs do not say so.
        given += ["-lm"] if language == "c" else []
        stages = _stages(name, build.dry_run(compiler, *given))
    except (OSError, subprocess.SubprocessError, ValueError):
        return missing
    recipe = Recipe(
        source=source,
        stages=stages,
        failure=Status.compile_error,
        product=_PRODUCT,
        run=[_PRODUCT],
        maker=maker,
    )
    readable = [
        *folders,
        str(Path(stages[0][0]).resolve().parent),
        *build.library_folders(stages[-1]),
        *(s[0] for s in stages),
        str(headers),
    ]
    chain = Toolchain(version=version, readable=readable, recipe=lambda _limits, _source: recipe)
    return chain if language == "c" else replace(chain, prepare=partial(_prepare, headers))


def _prepare(headers: Path) -> None:
    """Precompile C++'s header, once for all processes.

    Args:
        headers: a cache folder that is searched first, with this header and testlib.h.
    """
    # Forwards to the system's header, for a second include, which cannot be precompiled.
    forward = f"#include_next <{_HEADER}>\n"
    make_once(headers, _HEADER, lambda path: path.write_text(forward))
    make_once(headers, f"{_HEADER}.gch", _precompile)


def has_testlib() -> bool:
    """Return whether checkers that include testlib.h can be compiled."""
    return Path(os.environ.get(TESTLIB, "")).is_file()


def _stages(compiler: str, commands: list[list[str]]) -> list[list[str]]:
    """Return a compiler's commands with our file names, and the linker without its wrapper.

    Raises:
        ValueError: they are not the three known commands.
    """
    compile_, assemble, link = commands
    names = {
        compile_[compile_.index("-o") + 1]: _ASSEMBLY,
        assemble[assemble.index("-o") + 1]: _OBJECT,
    }
    assemble[0], link[0] = _tool(compiler, "as"), _tool(compiler, "ld")
    return [[names.get(word, word) for word in command] for command in commands]


def _tool(compiler: str, name: str) -> str:
    """Return the path of one of a compiler's tools; raise ValueError if it is missing."""
    found = shutil.which(build.output(compiler, f"-print-prog-name={name}").strip())
    if found is None:
        raise ValueError(f"no {name}")
    return str(Path(found).resolve())


def _finds(compiler: str, library: str) -> bool:
    return Path(build.output(compiler, f"-print-file-name={library}").strip()).is_absolute()


def _include_folders(printed: str) -> list[str]:
    _, _, rest = printed.partition("#include <...> search starts here:")
    listed, _, _ = rest.partition("End of search list.")
    return list(
        dict.fromkeys(
            str(Path(line.strip()).resolve()) for line in listed.split("\n") if line.strip()
        )
    )


def _precompile(target: Path) -> None:
    """Precompile the system's own header: trusted work, not confined."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        source = Path(folder) / "all.h"
        source.write_text(f"#include <{_HEADER}>\n")
        options = (*_COMPILING, "-std=gnu++17", "-x", "c++-header")
        build.output("g++", *options, str(source), "-o", str(target), timeout_s=_HEADER_S)
