"""The images of rooms: this machine's system, and what a simple Dockerfile adds to it.

A Dockerfile is simple if it needs nothing but a system: FROM, WORKDIR, COPY, ENV and USER without
variables and options, and RUN of one shell line that names no folder of the system. Its files, and its
commands' changes, are copied over each room's root. Everything else is for container engines, and refused
by name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from os.path import normpath
from pathlib import Path, PurePosixPath

from coding_model_project.contained import UnsafeNameError, below
from coding_model_project.harbor.environment import tree
from coding_model_project.harbor.environment.base import ImageError, NeedsContainer
from coding_model_project.harbor.environment.tree import Tree, of_folder

_BASES = re.compile(r"(docker\.io/)?(library/)?(debian|ubuntu|python)(:[\w.-]+)?(@sha256:\w+)?")
"""Images that this machine's system stands in for. Versions are this machine's."""

_SYSTEM = ["bin", "boot", "etc", "lib", "lib32", "lib64", "libx32", "sbin", "usr"]
_NAMES_SYSTEM = re.compile(rf"(?<![\w./-])/({'|'.join(_SYSTEM)})(?![\w.-])")
"""An absolute path of the system in a shell line."""

_WITHOUT_EFFECT = ("CMD", "EXPOSE", "LABEL", "MAINTAINER")
"""Instructions that change nothing: the task's commands run instead, and nobody connects."""

PACKAGES_LABEL = "coding_model_project.rooms.packages"
"""`LABEL` that, with the value `installed`, gives rooms this project's installed modules.
Container engines ignore labels; there the image installs what it needs."""

_MAX_TEXT = 128 << 10
"""Maximum bytes of a Dockerfile."""

_MAX_PATH = 4096
_MAX_BYTES = 1 << 30
"""Maximum size of an image's files, which are held in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction of a Dockerfile, with its continued lines joined."""

    where: str
    """File and line."""
    name: str
    """Name in capitals."""
    text: str
    """The rest of the line."""

    def refused(self, why: str) -> NeedsContainer:
        """Return an error about this instruction."""
        return NeedsContainer(f"{self.where}: {self.name}: {why}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lay:
    """Files to copy over a folder."""

    path: str
    files: Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute:
    """A command to run while the image is built."""

    instruction: Instruction
    cwd: str
    env: dict[str, str]
    user: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A room's image: settings, and files and commands in their order."""

    workdir: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    steps: tuple[Lay | Execute, ...] = ()
    notes: tuple[str, ...] = ()
    """Differences from the image that is named (`Environment.notes`)."""
    packages: bool = False
    """True to mount this project's installed modules read-only, with its interpreter first in PATH."""

    @property
    def files(self) -> Tree:
        """The files to copy over the root, without those that commands make."""
        laid = (step for step in self.steps if isinstance(step, Lay))
        return sum((one.files.below(one.path.strip("/.")) for one in laid), Tree())


def read_image(folder: Path, docker_image: str | None = None) -> Image:
    """Read the definition of a room's image. Starts nothing.

    Args:
        folder: contains a Dockerfile, or files for the working directory of `docker_image`.

    Raises:
        NeedsContainer: the image needs a container engine.
        ImageError: no engine can build it either.
    """
    dockerfile = folder / "Dockerfile"
    if docker_image is not None and not dockerfile.exists():
        note = _stand_in(docker_image, "environment.docker_image")
        files = Lay(path=".", files=of_folder(folder))
        return Image(steps=(files,), notes=(note,))
    if (folder / ".dockerignore").exists():
        raise NeedsContainer(f"{folder / '.dockerignore'}: rooms copy files that it leaves out")
    made = None
    for one in _instructions(dockerfile):
        made = _follow(made, one, folder)
    if made is None:
        raise ImageError(f"{dockerfile}: has no FROM")
    if made.files.n_bytes > _MAX_BYTES:
        raise NeedsContainer(f"{dockerfile}: its files hold more than {_MAX_BYTES} bytes")
    return made


def _instructions(path: Path) -> Iterator[Instruction]:
    """Yield a Dockerfile's instructions, without comments.

    Raises:
        ImageError: it cannot be read.
    """
    try:
        lines = tree.read(str(path), _MAX_TEXT).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ImageError(f"{path}: {error}") from error
    begins, joined = 0, ""
    for number, line in enumerate([*lines, ""], start=1):
        inside = joined and number <= len(lines)
        if line.lstrip().startswith("#") or (inside and not line.strip()):
            continue
        begins = begins or number
        joined += line.rstrip().removesuffix("\\")
        if line.rstrip().endswith("\\") and number <= len(lines):
            continue
        if joined.strip():
            name, _, rest = joined.strip().partition(" ")
            yield Instruction(where=f"{path}:{begins}", name=name.upper(), text=rest.strip())
        begins, joined = 0, ""


def _follow(made: Image | None, one: Instruction, folder: Path) -> Image:
    """Return the image after one more instruction."""
    if made is None:
        if one.name != "FROM":
            raise one.refused("comes before FROM")
        return Image(notes=(_stand_in(one.text.split(" ")[0], one.where),))
    if one.name == "RUN":
        if one.text.startswith(("[", "-")) or "<<" in one.text:
            raise one.refused("rooms support one plain shell line only")
        if found := _NAMES_SYSTEM.search(one.text):
            raise one.refused(f"names {found[0]}, and rooms share this machine's system")
        ran = Execute(instruction=one, cwd=made.workdir, env=dict(made.env), user=made.user)
        return replace(made, steps=(*made.steps, ran))
    if one.name == "LABEL" and f"{PACKAGES_LABEL}=installed" in one.text.split():
        note = f"{one.where}: this project's installed modules are mounted, read-only"
        return replace(made, packages=True, notes=(*made.notes, note))
    if one.name in _WITHOUT_EFFECT:
        return made
    if one.name not in ("ENV", "WORKDIR", "USER", "COPY"):
        raise one.refused("rooms support one FROM, WORKDIR, COPY, ENV, USER and RUN only")
    if "$" in one.text or "\\" in one.text or one.text.startswith(("-", "[")) or "<<" in one.text:
        raise one.refused("rooms do not support its variables, options or form")
    try:
        words = shlex.split(one.text)
    except ValueError as error:
        raise one.refused(str(error)) from error
    if one.name == "ENV":
        if not all("=" in word for word in words):
            raise one.refused("rooms support NAME=VALUE only")
        pairs = (word.partition("=") for word in words)
        return replace(made, env={**made.env, **{name: value for name, _, value in pairs}})
    if one.name == "COPY":
        return replace(made, steps=(*made.steps, _copied(one, words, made, folder)))
    if len(words) != 1:
        raise one.refused("expected one word")
    if one.name == "USER":
        return replace(made, user=words[0])
    workdir = _path(one, made, words[0])
    return replace(made, workdir=workdir, steps=(*made.steps, Lay(path=workdir, files=Tree())))


def _stand_in(image: str, where: str) -> str:
    """Return a note on the substitute for an image.

    Raises:
        NeedsContainer: there is none.
    """
    if not _BASES.fullmatch(image):
        raise NeedsContainer(f"{where}: this machine's system does not stand in for {image}")
    return f"{where}: this machine's directories stand in for {image}"


def _copied(one: Instruction, words: list[str], made: Image, folder: Path) -> Lay:
    if len(words) < 2:
        raise one.refused("needs a source and a destination")
    *sources, destination = words
    target = PurePosixPath(_path(one, made, destination))
    laid = {step.path for step in made.steps if isinstance(step, Lay)}
    into = destination.endswith("/") or len(sources) > 1 or str(target) in {"/", *laid}
    files = Tree()
    for source in sources:
        path = _source(one, source, folder)
        at = target / path.name if into and not path.is_dir() else target
        files += of_folder(path).moved(at.as_posix().lstrip("/"))
    return Lay(path="/", files=files)


def _source(one: Instruction, source: str, folder: Path) -> Path:
    """Return the file or folder that a COPY names.

    Raises:
        NeedsContainer: it is a pattern.
        ImageError: the folder has none, for whatever engine.
    """
    if re.search(r"[*?[]", source):
        raise one.refused(f"{source}: rooms do not support patterns")
    plain = PurePosixPath(source.lstrip("/")).as_posix()
    try:
        path = folder if plain == "." else below(folder, plain)
    except UnsafeNameError as error:
        raise ImageError(f"{one.where}: COPY: {source} is outside {folder}") from error
    if not path.exists():
        raise ImageError(f"{one.where}: COPY: {source}: no such file in {folder}")
    return path


def _path(one: Instruction, made: Image, given: str) -> str:
    """Return the absolute path of a path in the image, which may be relative to the working directory.

    Raises:
        NeedsContainer: it is in a folder of the system, or too long.
    """
    found = "/" + normpath(PurePosixPath(made.workdir, given)).lstrip("/")
    if found.split("/")[1] in _SYSTEM:
        raise one.refused(f"{found} is in a folder of the system, which rooms share")
    if len(found) > _MAX_PATH:
        raise one.refused("is a longer path than the kernel accepts")
    return found
