"""A task's environment folder as a plan for building rooms.

Rooms have no images. The host's own directories stand in for common ones (`HOSTS`), and the Dockerfile's
instructions run on top. Its copied files and its commands' changes are then copied over each room's root.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from coding_model_project.contained import UnsafeNameError, leaves, relative
from coding_model_project.harbor.containers.dockerfile import (
    WITH_DOCKER,
    ImageError,
    Instruction,
    TooLong,
    assignments,
    expand,
    parse,
    refuse_services,
)
from coding_model_project.harbor.environment.tree import Tree, of_files

HOSTS = {
    r"debian|ubuntu|buildpack-deps|bash": "bash",
    r"python": "python3",
    r"gcc": "gcc",
    r"node": "node",
    r"golang": "go",
    r"rust": "cargo",
    r"openjdk|eclipse-temurin|amazoncorretto": "java",
    r"perl": "perl",
    r"ruby": "ruby",
}
"""Images that the host's directories stand in for, by the start of their name's last part, with the
program that the host must have. Versions are the host's."""

_MAX_BYTES = 1 << 30
"""Maximum size of an image's files and variables, which are held in memory."""

_MAX_PATH = 4096

_IGNORED = {
    "CMD": "the task's commands run instead",
    "ENTRYPOINT": "the task's commands run instead",
    "EXPOSE": "nothing outside can connect",
    "HEALTHCHECK": "task.toml's is used",
    "LABEL": "",
    "MAINTAINER": "",
    "STOPSIGNAL": "rooms end immediately",
    "VOLUME": "every folder ends with the room",
}


PACKAGES_LABEL = "coding_model_project.rooms.packages"
"""`LABEL` that, with the value `installed`, gives rooms this project's installed modules.
Container engines ignore labels; there the image installs what it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lay:
    """Files to copy over a folder."""

    path: str
    files: Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Execute:
    """A command to run while the image is built."""

    instruction: Instruction
    command: str
    cwd: str
    env: dict[str, str]
    user: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The parsed result of a Dockerfile."""

    workdir: str = "/"
    env: dict[str, str] = field(default_factory=dict)
    user: str | None = None
    steps: tuple[Lay | Execute, ...] = ()
    notes: tuple[str, ...] = ()
    """Ignored instructions, and why ignoring them does little harm."""
    packages: bool = False
    """True if the image has the modules installed for this project."""


def plan(folder: Path, docker_image: str | None = None) -> Plan:
    """Return the plan for building an environment.

    Args:
        folder: contains a Dockerfile, or files for the working directory of `docker_image`.

    Raises:
        ImageError: the environment needs a container engine.
    """
    refuse_services(folder)
    dockerfile = folder / "Dockerfile"
    if docker_image is not None and not dockerfile.exists():
        note = _stand_in(docker_image, f"docker_image = {docker_image!r}")
        files = Lay(path=".", files=of_files(_below(folder))) if folder.is_dir() else None
        return Plan(steps=(files,) if files else (), notes=(note,) if note else ())
    return _Follower(folder).follow(parse(dockerfile))


def _stand_in(image: str, where: str) -> str:
    """Return a note on the substitute for an image.

    Raises:
        ImageError: there is none.
    """
    name = image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    for pattern, program in HOSTS.items():
        if re.match(rf"({pattern})\b", name):
            if shutil.which(program, path="/usr/local/bin:/usr/bin:/bin") is None and not (
                program == "python3"
            ):
                raise ImageError(f"{where}: this machine has no {program} to stand in for {image}")
            return f"{where}: this machine's directories stand in for {image}"
    raise ImageError(f"{where}: this machine has no substitute for {image}; {WITH_DOCKER}")


class _Follower:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._args: dict[str, str] = {}
        self._plan = Plan()
        self._shell = ["/bin/sh", "-c"]
        self._based = False

    def follow(self, instructions: tuple[Instruction, ...]) -> Plan:
        for one in instructions:
            try:
                self._follow(one)
            except TooLong as error:
                raise one.error(str(error)) from error
            n_bytes = sum(len(value) for value in self._variables.values()) + sum(
                len(step.files.body) for step in self._lays()
            )
            if n_bytes > _MAX_BYTES:
                raise one.error(
                    f"the image's files and variables hold more than {_MAX_BYTES} bytes"
                )
        if not self._based:
            raise ImageError(f"{self._folder / 'Dockerfile'}: has no FROM")
        return self._plan

    def _follow(self, one: Instruction) -> None:
        if not self._based and one.name not in ("ARG", "FROM"):
            raise one.error("comes before FROM")
        match one.name:
            case "FROM":
                self._base_on(one)
            case "ARG":
                name, _, default = one.text.partition("=")
                self._args.setdefault(name.strip(), self._expand(default.strip("\"'")))
            case "ENV":
                env = {**self._plan.env, **assignments(one, self._variables)}
                self._plan = replace(self._plan, env=env)
            case "WORKDIR":
                self._plan = replace(self._plan, workdir=self._path(one.text.strip("\"'")))
                self._add(Lay(path=self._plan.workdir, files=Tree()))
            case "USER":
                self._plan = replace(self._plan, user=self._expand(one.text))
            case "SHELL":
                self._shell = one.exec_form() or self._shell
            case "COPY" | "ADD":
                self._add(self._copied(one))
            case "RUN":
                self._add(self._command(one))
            case "LABEL" if assignments(one, self._variables).get(PACKAGES_LABEL) == "installed":
                note = f"{one.where}: this project's installed modules are mounted, read-only"
                notes = (*self._plan.notes, note)
                self._plan = replace(self._plan, packages=True, notes=notes)
            case name if name in _IGNORED:
                self._note(one, _IGNORED[name] or "it changes nothing here")
            case _:
                raise one.error("is not supported without a container engine")

    def _base_on(self, one: Instruction) -> None:
        if self._based:
            raise one.error("multi-stage builds are not supported")
        image = self._expand(one.words()[0])
        note = _stand_in(image, one.where)
        self._plan = replace(self._plan, notes=(*self._plan.notes, note))
        self._based = True

    def _command(self, one: Instruction) -> Execute:
        for option, value in one.options.items():
            if option != "mount" or "type=cache" not in value:
                raise one.error(f"--{option} is not supported")
        words = one.exec_form() or [*self._shell, one.heredoc or one.text]
        return Execute(
            instruction=one,
            command=" ".join(map(_quoted, words)),
            cwd=self._plan.workdir,
            env={**self._args, **self._plan.env},
            user=self._plan.user,
        )

    def _copied(self, one: Instruction) -> Lay:
        if one.heredoc is not None:
            raise one.error("here-documents are supported for RUN only")
        for option in one.options.keys() - {"chown", "chmod", "link"}:
            raise one.error(f"--{option} is not supported")
        words = [self._expand(word) for word in one.words()]
        if len(words) < 2:
            raise one.error("needs a source and a destination")
        *sources, destination = words
        chmod = one.options.get("chmod")
        if chmod is not None and not re.fullmatch(r"[0-7]{1,4}", chmod):
            raise one.error(f"--chmod={chmod} is not supported, only an octal mode such as 755")
        into = destination.endswith("/") or len(sources) > 1
        target = self._path(destination)
        files: list[tuple[str, Path]] = []
        for source in sources:
            if one.name == "ADD" and re.match(r"\w+://|.*\.(tar|tgz|txz|tar\.\w+)$", source):
                raise one.error(f"{source} is a URL or archive, which is not supported")
            files += self._found(one, source, PurePosixPath(target), into)
        tree = of_files(files)
        if chmod is not None:
            mode = int(chmod, 8)
            entries = tuple((n, k, mode if k == "f" else m, x) for n, k, m, x in tree.entries)
            tree = Tree(entries, tree.body)
        return Lay(path="/", files=tree)

    def _found(
        self, one: Instruction, source: str, target: PurePosixPath, into: bool
    ) -> Iterator[tuple[str, Path]]:
        """Yield the files of one source as (path below the root, path on the host)."""
        pattern = PurePosixPath(source.lstrip("/")).as_posix()
        if pattern.count("**") > 1:  # takes a time exponential in their number
            raise one.error(f"{source}: ** is supported once")
        try:
            whole = pattern == "."
            paths = [self._folder] if whole else sorted(self._folder.glob(relative(pattern)))
        except UnsafeNameError as error:
            raise one.error(f"{source} is outside {self._folder}") from error
        if not paths:
            raise one.error(f"{source}: no such file in {self._folder}")
        existing = target.as_posix() in {step.path for step in self._lays()} or target.name == ""
        for path in paths:
            if leaves(self._folder, path):
                raise one.error(f"{source} is outside {self._folder}")
            if path.is_dir():
                for name, found in _below(path):
                    yield (target / name).as_posix().lstrip("/"), found
            else:
                inside = into or existing or len(paths) > 1
                name = target / path.name if inside else target
                yield name.as_posix().lstrip("/"), path

    def _lays(self) -> Iterator[Lay]:
        return (step for step in self._plan.steps if isinstance(step, Lay))

    def _path(self, given: str) -> str:
        """Return the absolute path of an image's path, which may be relative to the working directory."""
        path = PurePosixPath(self._plan.workdir, self._expand(given))
        parts: list[str] = []
        for part in path.parts[1:]:
            if part == "..":
                del parts[-1:]
            else:
                parts.append(part)
        found = "/" + "/".join(parts)
        if len(found) > _MAX_PATH:
            raise TooLong("is a longer path than the kernel accepts")
        return found

    @property
    def _variables(self) -> dict[str, str]:
        return {**self._args, **self._plan.env}

    def _expand(self, text: str) -> str:
        return expand(text, self._variables)

    def _add(self, step: Lay | Execute) -> None:
        self._plan = replace(self._plan, steps=(*self._plan.steps, step))

    def _note(self, one: Instruction, why: str) -> None:
        note = f"{one.where}: {one.name} is ignored: {why}"
        self._plan = replace(self._plan, notes=(*self._plan.notes, note))


def _below(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield everything in a folder, each folder before its contents."""
    for path in sorted(folder.rglob("*")):
        yield path.relative_to(folder).as_posix(), path


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\"'\"'") + "'"
