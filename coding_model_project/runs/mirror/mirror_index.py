"""The index of a mirrored run, which tells readers its files and their hashes.

URL/mirror.json         the index, written last in each round
    PATH                a file of at most one part
    PATH.parts/000000   the parts of a larger file, all of PART_BYTES but the last
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field

from coding_model_project.contained import relative
from coding_model_project.errors import ConfigError

INDEX = "mirror.json"
NOT_MIRRORED = ("checkpoints", "exports", "wandb", ".hydra", INDEX)
"""Excluded names at the top of a run's folder. W&B uploads its own."""
PART_BYTES = 8 << 20
"""Size of a part. An append-only file is uploaded from its last part on, so this bounds re-uploads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredFile:
    """A file's size, time and parts."""

    bytes: int
    modified: float
    """Seconds since the epoch, by the run's clock."""
    parts: tuple[str, ...]
    """A hash of each part."""

    def is_prefix_of(self, later: MirroredFile) -> bool:
        """Return whether a later version only appended: complete parts are equal, and none was cut."""
        whole = self.bytes // PART_BYTES
        return self.bytes <= later.bytes and self.parts[:whole] == later.parts[:whole]


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorIndex:
    """The files of a mirrored run by their path."""

    id: str
    """Identifier of the run's folder, so that another run does not write to the same URL."""
    writer: str
    """Identifier of the writing process."""
    round: int
    """Counter of rounds; it also increases without changes, as a heartbeat."""
    every_s: float
    files: dict[str, MirroredFile] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def parse(cls, content: bytes, url: str) -> MirrorIndex:
        """Parse the content that `text` returns.

        Raises:
            ConfigError: the content is not an index.
        """
        try:
            fields = json.loads(content)
            files = {
                path: MirroredFile(**{**file, "parts": tuple(file["parts"])})
                for path, file in fields.pop("files").items()
            }
            for path in files:
                if relative(path).split("/")[0] in NOT_MIRRORED:
                    raise ValueError(f"names {path!r}, which no mirror has")
            return cls(**fields, files=files)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{url}/{INDEX}: not the index of a mirrored run ({error})"
            ) from error


def digest(content: bytes) -> str:
    """Return the hash of a part."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def object_names(path: str, n_parts: int) -> list[str]:
    """Return the object names of a file's parts."""
    if n_parts <= 1:
        return [path][:n_parts]
    return [f"{path}.parts/{number:06d}" for number in range(n_parts)]
