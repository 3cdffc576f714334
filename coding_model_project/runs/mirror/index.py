"""The index of a mirrored run, which tells readers whose copy it is and which files it has.

URL/mirror.json     the index, written last in each round
URL/PATH            a file of the run's folder, with its secrets masked
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from coding_model_project.contained import relative
from coding_model_project.errors import ConfigError
from coding_model_project.storage.object_store import Entry

INDEX = "mirror.json"
NOT_MIRRORED = ("checkpoints", "exports", "wandb", ".hydra", INDEX)
"""Excluded names at the top of a run's folder. W&B uploads its own."""


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
    files: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Size in bytes and time of the last change, in seconds since the epoch by the run's clock."""

    def text(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    def entries(self) -> Mapping[str, Entry]:
        """Return the files as a store lists objects."""
        return {
            path: Entry(bytes=size, version="", modified=modified)
            for path, (size, modified) in self.files.items()
        }

    @classmethod
    def parse(cls, content: bytes, url: str) -> MirrorIndex:
        """Parse the content that `text` returns.

        Raises:
            ConfigError: the content is not an index.
        """
        try:
            fields = json.loads(content)
            files = {
                relative(path): (int(look[0]), float(look[1]))
                for path, look in fields.pop("files").items()
                if isinstance(look, list)  # the run sends files of an older version's index again
            }
            if wrong := [path for path in files if path.split("/")[0] in NOT_MIRRORED]:
                raise ValueError(f"names {wrong[0]!r}, which no mirror has")
            return cls(**fields, files=files)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{url}/{INDEX}: not the index of a mirrored run ({error})"
            ) from error
