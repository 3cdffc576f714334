"""rustc: its stages as single commands, and how its programs are linked.

rustc by itself compiles, and has `cc` link. The linker is executed as a stage of its own instead, with
the words that rustc and cc gave it for another program, once. Programs are linked statically, so that
they need no file to run. There are no crates but the standard library's.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from coding_model_project.errors import ConfigError
from coding_model_project.sandbox.embedded.languages import tools
from coding_model_project.sandbox.embedded.languages.binaries import Binaries, cache_folder
from coding_model_project.sandbox.embedded.languages.build import Recipe
from coding_model_project.sandbox.embedded.languages.kept import make_once
from coding_model_project.sandbox.embedded.launch import Profile
from coding_model_project.types import Limits, Status

_SOURCE, _OBJECT, _PRODUCT = "main.rs", "main.o", "program"
_OLDEST = (1, 63)
_COMPILING = (
    "--crate-name=main", "--crate-type=bin", "--edition=2021", "-Copt-level=2", "-Ccodegen-units=1",
    "-Ctarget-feature=+crt-static", "-Crelocation-model=static", "-Awarnings", "--color=never",
)  # fmt: skip
_LINKING = ("-s", "-fno-use-linker-plugin", "-Wl,-z,muldefs")
"""A program with an allocator of its own defines what the probe's object defines, too: the first
definition counts."""

_LINK_FILE, _ALLOCATOR = "link.json", "allocator.o"
_PROBE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rust:
    """A rustc with a standard library that can be linked statically. `toolchains.Toolchain`."""

    version: str
    compile_: list[str]
    cc: str
    rustc: str
    readable: list[str]
    kept: Path
    """A folder of ours: how programs are linked, and an object that all of them need."""
    maker: str
    """A digest of compiler, linker and options."""
    binaries: Binaries
    profile: Profile = Profile.native

    def prepare(self) -> None:
        """Find out how programs are linked, once for all processes.

        Raises:
            ConfigError: none can be.
        """
        try:
            make_once(self.kept, _LINK_FILE, self._write_link)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            said = getattr(error, "stderr", "") or str(error)
            last = str(said).strip().splitlines()[-1:]
            raise ConfigError(
                f"rust programs do not run here: rustc and cc cannot link one: {''.join(last)[-200:]}"
            ) from error

    def recipe(self, limits: Limits, source: bytes) -> Recipe:
        return Recipe(
            source=_SOURCE,
            stages=[self.compile_, json.loads((self.kept / _LINK_FILE).read_text())],
            failure=Status.compile_error,
            product=_PRODUCT,
            run=[_PRODUCT],
            maker=self.maker,
        )

    def _write_link(self, target: Path) -> None:
        linker = _probe(self.rustc, self.cc, self.kept)
        partial = target.with_name(f".{target.name}")
        partial.write_text(json.dumps(linker))
        partial.replace(target)


@lru_cache
def find() -> Rust | str:
    """Return the rustc of this machine, or what it lacks, and how to get it."""
    if shutil.which("rustc") is None:
        return "rustc is not installed (https://rustup.rs)"
    told = tools.says("rustc", "-vV") or ""
    release = re.search(r"^release: (\d+)\.(\d+)", told, re.M)
    host = re.search(r"^host: (\S+)", told, re.M)
    sysroot = tools.says("rustc", "--print", "sysroot")
    if not release or not host or not sysroot:
        return "rustc does not say its version (has rustup a toolchain? rustup default stable)"
    if (int(release[1]), int(release[2])) < _OLDEST:
        return f"rustc {release[1]}.{release[2]} is too old: 1.{_OLDEST[1]} or later"
    libraries = Path(sysroot, "lib/rustlib", host[1], "lib")
    if not any(libraries.glob("libstd-*.rlib")):
        return f"rustc has no standard library to link (rustup target add {host[1]})"
    rustc = Path(sysroot, "bin/rustc").resolve()
    if not rustc.is_file():
        return f"rustc's own folder has no bin/rustc: {sysroot}"
    cc, ld = tools.which("cc"), tools.which("ld")
    found = cc and tools.says(cc, "-print-file-name=libc.a")
    if not cc or not ld or not found or not Path(found).is_absolute():
        return "cc with the static libc.a, and ld, are not installed, which link its programs"
    library = Path(sysroot, "lib")
    # Where there is no /proc, rustc cannot tell where it lies and so where its libraries are.
    begins = tools.through_loader(rustc, library)
    compile_ = [*begins, *_COMPILING, f"--sysroot={sysroot}", "--emit=obj", "-o", _OBJECT, _SOURCE]
    made_by = repr((told, compile_, _LINKING, tools.stamp(str(rustc)), tools.stamp(cc)))
    maker = hashlib.sha256(made_by.encode()).hexdigest()
    cache = cache_folder()
    kept = cache / f"rust-{maker[:16]}"
    return Rust(
        version=told.partition(" (")[0],
        compile_=compile_,
        cc=cc,
        rustc=str(rustc),
        readable=[str(library), str(rustc), ld, *_cc_folders(cc), str(kept)],
        kept=kept,
        maker=maker,
        binaries=Binaries(cache / "binaries"),
    )


def _cc_folders(cc: str) -> list[str]:
    """Return the folders of what cc adds to a program."""
    paths: list[Path] = []
    for name in ("crt1.o", "crtbeginT.o", "libgcc_eh.a", "libc.a"):
        told = tools.says(cc, f"-print-file-name={name}") or ""
        if Path(told).is_absolute():
            paths.append(Path(told).resolve().parent)
    return list(map(str, dict.fromkeys(paths)))


def _probe(rustc: str, cc: str, kept: Path) -> list[str]:
    """Trusted work on a program of ours: have it compiled and linked as rustc does, keep the object that
    rustc adds to programs (its allocator), and return the linker's command for any other.

    Raises:
        OSError, subprocess.SubprocessError: something cannot be run, or fails.
        ValueError: the commands are not as they are known.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / _SOURCE).write_text("fn main() {}\n")
        saving = ("-Csave-temps", f"-Clinker={cc}", "--print=link-args", "-o", _PRODUCT, _SOURCE)
        printed = tools.said(rustc, *_COMPILING, *saving, folder=folder, timeout_s=_PROBE_S)
        words = [word for word in shlex.split(printed) if "=" not in word or word.startswith("-")]
        words = words[words.index(cc) + 1 :]
        objects = [word for word in words if word.endswith(".rcgu.o")]
        program = [word for word in objects if "-cgu.0." in word or ".main." in word]
        (allocator,) = set(objects) - set(program)
        names = {program[0]: _OBJECT, allocator: str(kept / _ALLOCATOR)}
        shutil.copy(folder / allocator, kept / _ALLOCATOR)
        kept_words = [names.get(word, word) for word in _without_probe(words, name)]
        said = tools.said(cc, *kept_words, *_LINKING, "-###", folder=folder, errors=True)
    command = [shlex.split(line) for line in said.splitlines() if line.startswith(" ")][-1]
    ld = tools.which("ld")
    assert ld is not None
    return [ld, *command[1:]]


def _without_probe(words: list[str], folder: str) -> list[str]:
    """Leave out what is the probe's own, and the choice of another linker than ld."""
    left: list[str] = []
    for word in words:
        if word.startswith(folder):
            with contextlib.suppress(IndexError):
                if left[-1] == "-L":
                    left.pop()
        elif not word.startswith(("-fuse-ld=", "-B")):
            left.append(word)
    return left
