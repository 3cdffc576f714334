"""How a program in another language than Python is made and run: what a toolchain answers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from coding_model_project.types import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a program is made and run. The first word of a command is the file that is executed."""

    source: str
    """The name of the program's file."""
    stages: list[list[str]] = field(default_factory=list)
    """Commands before any of the program runs, in a folder with its files."""
    failure: Status = Status.syntax_error
    """What it means if one of them fails."""
    product: str = ""
    """The file that they make and that is the program; "" where the source is."""
    packs: str = ""
    """A folder that exists before the stages; its files, as a zip archive, are the product."""
    run: list[str]
    """Executes the product, or what reads the product or the source, which is then an argument."""
    overhead_mb: int = 0
    """Megabytes that a runtime takes on top of the program's limit, which it keeps by itself."""
    maker: str = ""
    """All of the toolchain that a product depends on."""

    def key(self, files: dict[str, bytes]) -> str:
        """The name of the product of these files."""
        digest = hashlib.sha256(repr((self.maker, self.stages)).encode())
        for name, content in sorted(files.items()):
            digest.update(f"{name}\0{len(content)}\0".encode("utf-8", "surrogatepass") + content)
        return digest.hexdigest()
