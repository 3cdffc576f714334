"""The tools of a language other than Python, and the commands that build and run a program.

It also has queries of a machine's compilers and interpreters, and caches on disk, shared by all workers:
products of compilers, and files that are made once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from coding_model_project.contained import is_ours, open_lock
from coding_model_project.sandbox.embedded.launch import Profile
from coding_model_project.types import Limits, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A toolchain's commands for one program. A command's first word is the file to execute."""

    source: str
    """The name of the program's file."""
    stages: list[list[str]] = field(default_factory=list)
    """Commands that run before the program, in a folder with its files."""
    failure: Status = Status.syntax_error
    """The program's status if a stage fails."""
    product: str = ""
    """The file that the stages make and that is the program; "" if the source is."""
    packs: str = ""
    """A folder that exists before the stages; its files, as a zip archive, are the product."""
    run: list[str]
    """The command that runs the program: the product, or a runtime with product or source as argument."""
    overhead_mb: int = 0
    """Megabytes of the runtime on top of the program's memory limit, which the runtime enforces."""
    compiler_mb: int = 512
    """Memory limit of a stage, unless the program's own is higher."""
    maker: str = ""
    """A description of everything in the toolchain that a product depends on."""

    def key(self, files: dict[str, bytes]) -> str:
        """Return the cache key of the product of these files."""
        digest = hashlib.sha256(repr((self.maker, self.stages)).encode())
        for name, content in sorted(files.items()):
            digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogatepass") + content)
        return digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The tools that build and run programs in a language."""

    version: str
    readable: list[str]
    """Host files and folders that it needs besides `confine.READABLE`."""
    recipe: Callable[[Limits, bytes], Recipe]
    """Returns the commands for a program's limits and source."""
    prepare: Callable[[], object] = lambda: None
    """Makes its files on disk, unless they exist.

    It may raise OSError, subprocess.SubprocessError and ValueError.
    """
    unprepared: str = ""
    """Why no program runs if `prepare` fails; "" if programs only compile slower."""
    profile: Profile = Profile.native


def which(name: str) -> str | None:
    """Return the path of a command, through all links; None if it is not installed."""
    found = shutil.which(name)
    return str(Path(found).resolve()) if found else None


def output_or_none(
    tool: str | None, *options: str, variables: Mapping[str, str] | None = None
) -> str | None:
    """Return a tool's output; None if there is no tool, or it cannot be run, or fails."""
    try:
        return output(tool, *options, variables=variables).strip() if tool else None
    except (OSError, subprocess.SubprocessError):
        return None


def output(
    *command: str,
    errors: bool = False,
    timeout_s: float = 30.0,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Return a tool's standard output, or with `errors` its standard error.

    Raises:
        OSError, subprocess.SubprocessError: it cannot be run, or failed.
    """
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=True,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C", **(variables or {})},
    )
    return done.stderr if errors else done.stdout


def dry_run(*compiler: str, folder: Path | None = None) -> list[list[str]]:
    """Return the commands that a compiler would execute, by its `-###`; raises as `output` does."""
    printed = output(*compiler, "-###", errors=True, folder=folder)
    return [shlex.split(line) for line in printed.splitlines() if line.startswith(" ")]


def last_words(error: Exception) -> str:
    """Return the last line of what a tool that failed printed, or of the error."""
    lines = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1:]
    return "".join(lines)[-200:]


def stamp(path: str) -> list[object]:
    """Return values that change when a tool is replaced: its path, size and time."""
    info = Path(path).resolve().stat()
    return [path, info.st_size, info.st_mtime_ns]


def library_folders(linker: Sequence[str]) -> list[str]:
    """Return the folders of the files in a linker's command."""
    paths: list[Path] = []
    for word in linker:
        if word.startswith("-L"):
            paths.append(Path(word[2:]))
        elif word.startswith("/") and word.endswith((".o", ".rlib")):
            paths.append(Path(word).parent)
    return list(dict.fromkeys(str(path.resolve()) for path in paths if path.is_dir()))


def through_loader(program: Path, libraries: Path) -> list[str]:
    """Return the start of a command that runs a program through its dynamic loader, with a folder of
    libraries that the program would otherwise find by its own path."""
    with program.open("rb") as file:
        named = re.search(rb"/[\w./-]*/ld-[\w.-]+\.so[.\d]*\0", file.read(1 << 14))
    if named is None:
        return [str(program)]
    return [named[0][:-1].decode(), "--library-path", str(libraries), str(program)]


_MAX_BYTES = 512 << 20
_KEPT_S = 14 * 86400.0
_DIGEST = hashlib.sha256().digest_size


class Binaries:
    """A cache of files by key that evicts the least recently used.

    Each file is written under another name and then renamed, and begins with a digest of its content, so
    a reader gets all of it or nothing. On a full or read-only disk it stores nothing, but does not fail.
    """

    def __init__(self, folder: Path, max_bytes: int = _MAX_BYTES) -> None:
        self._folder, self._max_bytes = folder, max_bytes

    def get(self, key: str) -> bytes | None:
        """Return the content of a key, if it is still there and undamaged."""
        path = self._folder / key
        try:
            data = path.read_bytes()
        except OSError:
            return None
        digest, content = data[:_DIGEST], data[_DIGEST:]
        if hashlib.sha256(content).digest() != digest:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store content, and evict the least recently used files beyond the bound."""
        partial = self._folder / f".{os.getpid()}-{threading.get_ident()}"
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(hashlib.sha256(content).digest() + content)
            partial.replace(self._folder / key)
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        found: list[tuple[float, int, Path]] = []
        for path in self._folder.iterdir():
            with contextlib.suppress(OSError):  # another worker evicted it
                info = path.stat()
                found.append((info.st_mtime, info.st_size, path))
        size = sum(size for _, size, _ in found)
        for _, length, path in sorted(found):
            if size <= self._max_bytes:
                break
            path.unlink(missing_ok=True)
            size -= length


def cache_folder() -> Path:
    """Return a cache folder that only this user can write: its files are executed, even if confined.

    It is a temporary one if the home is not writable or belongs to another user.
    """
    try:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        folder = root / "coding_model_project"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if is_ours(folder.resolve()) and os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError):  # RuntimeError: a user without a home
        pass
    return Path(_of_this_process().name)


@lru_cache
def _of_this_process() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder that is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="coding-cache-")


def made_by(kind: str, *parts: object) -> tuple[str, Path]:
    """Return a digest of all that a tool's products depend on, and a cache folder named after it."""
    maker = hashlib.sha256(repr(parts).encode()).hexdigest()
    return maker, cache_folder() / f"{kind}-{maker[:16]}"


def make_once(folder: Path, name: str, make: Callable[[Path], object]) -> None:
    """Make a file unless it exists, and remove folders of older tools unused for 14 days.

    Args:
        folder: a cache folder named after its purpose and a digest: `headers-0123`.
        name: the file's name; the file appears whole or not at all.
        make: writes the file to the path that it gets, beside the final one.

    Raises:
        OSError: the folder cannot be written; exceptions of `make` also propagate.
    """
    target = folder / name
    with contextlib.suppress(OSError):
        os.utime(folder)
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = open_lock(folder / ".lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _remove_unused(folder)
            partial = target.with_name(f".{target.name}")
            make(partial)
            partial.replace(target)
    finally:
        os.close(lock)


def _remove_unused(folder: Path) -> None:
    for other in folder.parent.glob(f"{folder.name.partition('-')[0]}-*"):
        if time.time() - other.stat().st_mtime > _KEPT_S:
            shutil.rmtree(other, ignore_errors=True)
