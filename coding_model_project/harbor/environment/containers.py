"""Container environments: images built from a task's folder, and containers that no crash leaks."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson
import psutil

from coding_model_project.concurrency import Once
from coding_model_project.contained import open_lock, private_folder
from coding_model_project.harbor.environment.base import (
    DEFAULT_MEMORY_MB,
    DEFAULT_PROCESSES,
    Environment,
    EnvironmentFailed,
    Environments,
    ImageError,
    RegistryUnreachable,
)
from coding_model_project.harbor.environment.container import (
    STAY,
    Container,
    Engine,
    is_unreachable,
    one_line,
)
from coding_model_project.harbor.environment.definition import defined
from coding_model_project.harbor.environment.tree import Tree, from_tar, of_folder
from coding_model_project.harbor.format.task_config import EnvironmentConfig, NetworkMode

_KEPT_IMAGES = 1024
_START_S = 60.0
_LOOK_S = 0.1
_PREFIX = f"coding-harbor-{os.uname().nodename}"
_IMAGES = "coding-harbor"
"""Repository name of images in the engine."""

_NO_STAGE = re.compile(rb"COPY --from=(\S+): no stage or image found")

_HEREDOC = re.compile(
    r"""^\s*(?:RUN|COPY|ADD)\s(?:[^\n]*\\\n)*[^\n]*(?<![<\w])<<-?["']?(\w+)["']?[^<\n]*\n"""
    r"(?:.*\n)*?\t*\1\s*$",
    re.IGNORECASE | re.MULTILINE,
)
_WITH_HEREDOCS = (4, 8)
"""The first version of podman that builds here-documents. Earlier ones take their lines for
instructions, and may build another image than the Dockerfile's."""

_TESTS = "[ ! -d /tests ] || tar -C / -cf - tests"
_TESTS_BYTES = 64 << 20


class NodeLimit:
    """A limit made of locked files, which the kernel unlocks if a process is killed.

    Args:
        n_places: number of places. Processes with different numbers share the first ones.
        folder: folder of the lock files, common to all processes. Default: this user's on this node.
    """

    def __init__(self, n_places: int, folder: Path | None = None) -> None:
        self._n_places = n_places
        self._folder = folder or private_folder()

    def free(self) -> int | None:
        """Take a place if one is free; `os.close` releases it.

        Raises:
            OSError: the folder is not writable.
        """
        for number in range(self._n_places):
            place = open_lock(self._folder / f"container-{number}")
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(place)
            else:
                return place
        return None

    async def take(self) -> int:
        """Wait for a place. Raises as `free`."""
        while (place := self.free()) is None:
            await asyncio.sleep(_LOOK_S)
        return place


@dataclass(frozen=True, slots=True, kw_only=True)
class _Built:
    """An image of the engine."""

    id: str
    workdir: str
    user: str | None
    tests: Tree
    entrypoint: tuple[str, ...]
    files: Tree
    """Files for the working directory of an image that was not built from the folder."""


class ContainerEnvironments(Environments):
    """A factory of environments in containers. See `base.Environments`.

    It builds an image once for each content of a folder; the engine keeps it for later runs.

    Args:
        program: docker or podman.
        at_once: maximum containers in use on this node by all processes of this user; None: no limit.
    """

    def __init__(self, program: str, *, at_once: int | None = None) -> None:
        self._engine = Engine(program)
        self.identity = f"harbor/{program}"
        self._limit = None if at_once is None else NodeLimit(at_once)
        self._names = f"{_PREFIX}-{_owner(os.getpid())}-{secrets.token_hex(4)}"
        self._images: Once[tuple[Path, str | None], _Built] = Once(_KEPT_IMAGES)

    async def __aenter__(self) -> Self:
        """Find the engine, and remove containers of processes that were killed.

        Raises:
            EnvironmentFailed: no engine responds.
        """
        await self._engine.find()
        await self._remove(name for name in await self._listed() if _left_behind(name))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._remove(name for name in await self._listed() if name.startswith(self._names))

    async def create(
        self, folder: Path, config: EnvironmentConfig, env: Mapping[str, str]
    ) -> Environment:
        """See `Environments.create`."""
        config = defined(folder, config, env)
        limits = [*self._engine.limits, *_limits(config), *self._devices(config)]
        built = await self._images.get(
            (folder, config.docker_image), lambda: self._build(folder, config)
        )
        place = None if self._limit is None else await self._limit.take()
        return await self._start(built, config, limits, place)

    def _devices(self, config: EnvironmentConfig) -> list[str]:
        """Return the engine's arguments for a task's GPUs.

        Raises:
            ImageError: this machine has fewer.
        """
        if not config.gpus:
            return []
        n_here = len(list(Path("/dev").glob("nvidia[0-9]*")))
        if n_here < config.gpus:
            raise ImageError(f"environment.gpus = {config.gpus}: this machine has {n_here}")
        if self._engine.program == "docker":
            return ["--gpus", str(config.gpus)]
        return ["--device", "nvidia.com/gpu=all"]

    async def _start(
        self, built: _Built, config: EnvironmentConfig, limits: Sequence[str], place: int | None
    ) -> Container:
        """Start a container.

        Args:
            place: of the `NodeLimit`; released when the container is gone.

        Raises:
            EnvironmentFailed: the engine cannot start it.
            ImageError: its ENTRYPOINT ends instead of running the command that it gets.
        """
        name = f"{self._names}-{secrets.token_hex(4)}"
        container = Container(
            self._engine,
            name,
            workdir=config.workdir or built.workdir,
            env=config.env,
            user=built.user,
            tests=built.tests,
            place=place,
        )
        # An entrypoint starts what the image needs, as the image's user, and then runs the command.
        as_root = () if built.entrypoint else ("--user", "0", "--workdir", "/")
        words = ("--stop-timeout", "0", *as_root, *limits, built.id, "sh", "-c", STAY)
        try:
            await self._engine.detach("run", "--detach", "--name", name, *words, timeout_s=_START_S)
            try:
                await container.prepare()
            except EnvironmentFailed as error:
                if not built.entrypoint or await container.is_alive():
                    raise
                raise ImageError(
                    f"{built.id}: its ENTRYPOINT {built.entrypoint} ended; it must run the command that "
                    'it gets, as with `exec "$@"`'
                ) from error
            if built.files.entries:
                await container.write_tree(container.workdir, built.files)
        except BaseException:
            await container.cleanup()
            raise
        return container

    async def _build(self, folder: Path, config: EnvironmentConfig) -> _Built:
        """Build or pull an image.

        Raises:
            ImageError, RegistryUnreachable: as `_made`; the message has the engine's output.
        """
        image, files = config.docker_image, Tree()
        if (folder / "Dockerfile").exists() or image is None:
            image = await self._by_content(folder, config.build_timeout_sec)
        else:
            files = of_folder(folder)
            if (await self._engine.run("image", "inspect", image))[0] != 0:
                await self._made(image, ("pull", "--quiet", image), config.build_timeout_sec)
        shown = await self._engine.ask("image", "inspect", "--format", "{{json .Config}}", image)
        about: dict[str, Any] = orjson.loads(shown)
        return _Built(
            id=image,
            entrypoint=tuple(about.get("Entrypoint") or ()),
            files=files,
            workdir=about.get("WorkingDir") or "/",
            user=about.get("User") or None,
            tests=(await self._tests_of(image)).within("tests"),
        )

    async def _by_content(self, folder: Path, timeout_s: float) -> str:
        """Return the image of a folder's content, built if missing; its tag is the content's hash."""
        files = await asyncio.to_thread(of_folder, folder)
        name = f"{_IMAGES}:{files.digest()[:32]}"
        if (await self._engine.run("image", "inspect", name))[0] != 0:
            await self._refuse_heredocs(folder / "Dockerfile")
            arguments = (
                *self._engine.limits,
                *_memory(_share_mb()),
                "--tag",
                name,
                "--file",
                str(folder / "Dockerfile"),
                str(folder),
            )
            await self._made(str(folder), ("build", "--quiet", *arguments), timeout_s)
        return name

    async def _refuse_heredocs(self, dockerfile: Path) -> None:
        """Raise if a Dockerfile has a here-document that this podman cannot build.

        Raises:
            ImageError: it has.
        """
        text = dockerfile.read_text("utf-8", "replace")
        found = _HEREDOC.search(text) if self._engine.program == "podman" else None
        if found is None:
            return
        version = await self._engine.ask("version", "--format", "{{.Client.Version}}")
        if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _WITH_HEREDOCS:
            line = text.count("\n", 0, found.start(1)) + 1
            raise ImageError(
                f"{dockerfile}:{line}: podman {version} does not build here-documents (<<{found[1]}); "
                f"install podman {'.'.join(map(str, _WITH_HEREDOCS))} or later, or docker"
            )

    async def _made(self, what: str, arguments: tuple[str, ...], timeout_s: float) -> str:
        """Return the image id that the engine prints last.

        Raises:
            ImageError: the engine failed.
            RegistryUnreachable: it got no answer from a registry.
        """
        code, out, err = await self._engine.run(*arguments, timeout_s=timeout_s, tether=True)
        words = out.decode("utf-8", "replace").split()
        if code != 0 or not words:
            if found := _NO_STAGE.search(err):  # podman hides the registry's answer
                err += (await self._engine.run("pull", "--quiet", found[1].decode()))[2]
            failure = RegistryUnreachable if is_unreachable(err) else ImageError
            raise failure(f"{what}: {self._engine.program} {arguments[0]}: {one_line(err)}")
        return words[-1]

    async def _tests_of(self, image: str) -> Tree:
        """Return the image's own /tests, since an agent may change its container's copy."""
        isolated = ("--rm", "--network", "none", "--user", "0", "--entrypoint", "sh")
        words = ("run", *self._engine.limits, *isolated, image, "-c", _TESTS)
        code, packed, err = await self._engine.run(*words, max_output=2 * _TESTS_BYTES)
        if code != 0:
            raise ImageError(f"{image}: the image needs sh and tar: {one_line(err)}")
        try:
            return from_tar(packed, _TESTS_BYTES) if packed else Tree()
        except OSError as error:
            raise ImageError(f"{image}: its /tests cannot be read: {error}") from error

    async def _listed(self) -> list[str]:
        """Return the names of this project's containers on this machine."""
        names = await self._engine.ask(
            "ps", "--all", "--filter", f"name={_PREFIX}", "--format", "{{.Names}}"
        )
        return names.split()

    async def clean(self) -> tuple[int, int]:
        """Remove all images of tasks that no container uses. Call it between `__aenter__` and exit.

        Returns:
            The number of removed images, and of those that are in use.
        """
        shown = await self._engine.ask("images", "--format", "{{.Repository}}:{{.Tag}}")
        own = [
            name
            for name in shown.split()
            if name.rpartition(":")[0].removeprefix("localhost/") == _IMAGES
        ]
        removed = [name for name in own if (await self._engine.run("rmi", name))[0] == 0]
        return len(removed), len(own) - len(removed)

    async def _remove(self, names: Iterable[str]) -> None:
        if given := list(names):
            await self._engine.ask("rm", "--force", "--volumes", *given)


def _limits(config: EnvironmentConfig) -> list[str]:
    """Return the engine's arguments for a container's resource limits."""
    words = [*_memory(config.memory_mb or _share_mb()), "--pids-limit", str(DEFAULT_PROCESSES)]
    if config.cpus:
        words += ["--cpus", str(config.cpus)]
    if config.network_mode is NetworkMode.no_network:
        words += ["--network", "none"]
    return words


def _memory(mb: int) -> tuple[str, ...]:
    return "--memory", f"{mb}m", "--memory-swap", f"{mb}m"


def _share_mb() -> int:
    """Return the most memory of a container or build without a limit of its own: half of the machine's.

    Harbor sets none, but one trial must not take all of it.
    """
    return max(DEFAULT_MEMORY_MB, psutil.virtual_memory().total >> 21)


def _owner(pid: int) -> str:
    return f"{pid}.{int(psutil.Process(pid).create_time())}"


def _left_behind(name: str) -> bool:
    """Return whether the process that made a container is gone, because it was killed."""
    owner = name.removeprefix(f"{_PREFIX}-").partition("-")[0]
    try:
        return _owner(int(owner.partition(".")[0])) != owner
    except (psutil.NoSuchProcess, ValueError):
        return True
