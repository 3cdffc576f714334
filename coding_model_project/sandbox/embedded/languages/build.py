"""The tools of a language other than Python, and the commands that build and run a program."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

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


def _nothing() -> None:
    """Prepare nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """The tools that build and run programs in a language."""

    version: str
    readable: list[str]
    """Host files and folders that it needs besides `confine.READABLE`."""
    recipe: Callable[[Limits, bytes], Recipe]
    """Returns the commands for a program's limits and source."""
    prepare: Callable[[], None] = _nothing
    """Makes its files on disk, unless they exist; may raise ConfigError."""
    profile: Profile = Profile.native
