"""rustc: its stages as single commands, and the linking of its programs.

rustc itself compiles, and starts `cc` to link. Instead, the linker is executed as its own stage, with the
arguments that rustc and cc once gave it for another program. Programs are linked statically, so they need
no files to run. They can use only the standard library's crates.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import tempfile
from functools import lru_cache, partial
from pathlib import Path

from coding_model_project.sandbox.embedded.languages import build
from coding_model_project.sandbox.embedded.languages.build import (
    Recipe,
    Toolchain,
    made_by,
    make_once,
)
from coding_model_project.types import Limits, Status

_SOURCE, _OBJECT, _PRODUCT = "main.rs", "main.o", "program"
_OLDEST = (1, 63)
_COMPILING = (
    "--crate-name=main", "--crate-type=bin", "--edition=2021", "-Copt-level=2", "-Ccodegen-units=1",
    "-Ctarget-feature=+crt-static", "-Crelocation-model=static", "-Awarnings", "--color=never",
)  # fmt: skip
_LINKING = ("-s", "-fno-use-linker-plugin", "-Wl,-z,muldefs")
"""Options of the linker. A program with its own allocator repeats definitions of the probe's object, of
which the first counts."""

_LINK_FILE, _ALLOCATOR = "link.json", "allocator.o"
_PROBE_S = 120.0


@lru_cache
def find() -> Toolchain | str:
    """Return the rustc of this machine that links statically, or what is missing and how to get it."""
    if shutil.which("rustc") is None:
        return "rustc is not installed (https://rustup.rs)"
    version = build.output_or_none("rustc", "-vV") or ""
    release = re.search(r"^release: (\d+)\.(\d+)", version, re.M)
    host = re.search(r"^host: (\S+)", version, re.M)
    sysroot = build.output_or_none("rustc", "--print", "sysroot")
    if not release or not host or not sysroot:
        return "the version of rustc cannot be read (without a toolchain: rustup default stable)"
    if (int(release[1]), int(release[2])) < _OLDEST:
        return f"rustc {release[1]}.{release[2]} is too old: 1.{_OLDEST[1]} or later"
    libraries = Path(sysroot, "lib/rustlib", host[1], "lib")
    if not any(libraries.glob("libstd-*.rlib")):
        return f"rustc has no standard library to link (rustup target add {host[1]})"
    rustc = Path(sysroot, "bin/rustc").resolve()
    if not rustc.is_file():
        return f"rustc's own folder has no bin/rustc: {sysroot}"
    cc, ld = build.which("cc"), build.which("ld")
    found = build.output_or_none(cc, "-print-file-name=libc.a")
    if not cc or not ld or not found or not Path(found).is_absolute():
        return "cc with the static libc.a, and ld, which link Rust programs, are not installed"
    library = Path(sysroot, "lib")
    # Without /proc, rustc cannot find its own path, and so its libraries.
    command = build.through_loader(rustc, library)
    compile_ = [*command, *_COMPILING, f"--sysroot={sysroot}", "--emit=obj", "-o", _OBJECT, _SOURCE]
    maker, kept = made_by(
        "rust", version, compile_, _LINKING, build.stamp(str(rustc)), build.stamp(cc)
    )

    def recipe(_limits: Limits, _source: bytes) -> Recipe:
        return Recipe(
            source=_SOURCE,
            stages=[compile_, json.loads((kept / _LINK_FILE).read_text())],
            failure=Status.compile_error,
            product=_PRODUCT,
            run=[_PRODUCT],
            compiler_mb=1024,  # of address space, half of which its libraries take
            maker=maker,
        )

    return Toolchain(
        version=version.partition(" (")[0],
        readable=[str(library), str(rustc), ld, *_cc_folders(cc), str(kept)],
        recipe=recipe,
        prepare=partial(make_once, kept, _LINK_FILE, partial(_probe, str(rustc), cc)),
        unprepared="rustc and cc cannot link one",
    )


def _cc_folders(cc: str) -> list[str]:
    """Return the folders of the files that cc adds to a program."""
    paths: list[Path] = []
    for name in ("crt1.o", "crtbeginT.o", "libgcc_eh.a", "libc.a"):
        path = Path(build.output_or_none(cc, f"-print-file-name={name}") or "")
        if path.is_absolute():
            paths.append(path.resolve().parent)
    return list(map(str, dict.fromkeys(paths)))


def _probe(rustc: str, cc: str, target: Path) -> None:
    """Build a trusted program with rustc, unconfined, and write the linker's command for any program.

    It also keeps the object that rustc adds to programs (its allocator), beside the command.

    Raises:
        OSError, subprocess.SubprocessError: a command cannot be run, or fails.
        ValueError: the commands do not have the known form.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / _SOURCE).write_text("fn main() {}\n")
        saving = ("-Csave-temps", f"-Clinker={cc}", "--print=link-args", "-o", _PRODUCT, _SOURCE)
        printed = build.output(rustc, *_COMPILING, *saving, folder=folder, timeout_s=_PROBE_S)
        words = [word for word in shlex.split(printed) if "=" not in word or word.startswith("-")]
        words = words[words.index(cc) + 1 :]
        objects = [word for word in words if word.endswith(".rcgu.o")]
        program = [word for word in objects if "-cgu.0." in word or ".main." in word]
        (allocator,) = set(objects) - set(program)
        kept = target.with_name(_ALLOCATOR)
        names = {program[0]: _OBJECT, allocator: str(kept)}
        shutil.copy(folder / allocator, kept)
        kept_words = [names.get(word, word) for word in _without_probe(words, name)]
        *_, linking = build.dry_run(cc, *kept_words, *_LINKING, folder=folder)
    target.write_text(json.dumps([build.which("ld"), *linking[1:]]))


def _without_probe(words: list[str], folder: str) -> list[str]:
    """Remove the probe's own files, and options that select another linker than ld."""
    left: list[str] = []
    for word in words:
        if word.startswith(folder):
            with contextlib.suppress(IndexError):
                if left[-1] == "-L":
                    left.pop()
        elif not word.startswith(("-fuse-ld=", "-B")):
            left.append(word)
    return left
