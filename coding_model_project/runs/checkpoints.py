"""Checkpoints with manifests, which are verified before a run resumes from them.

verl writes `checkpoints/global_step_N/` and resumes from the step in its tracker file, whatever state
that folder is in. Here a checkpoint is complete once it has a manifest, which is written last, and whole
if its files match the manifest. Each rank saves its own shard, maybe on another node: a manifest without
the shards of all ranks is invalid.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from coding_model_project.atomic import write_text
from coding_model_project.contained import UnsafeNameError, below, relative
from coding_model_project.errors import CheckpointError
from coding_model_project.runs.lease import STALE_S

MANIFEST = "manifest.json"
TRACKER = "latest_checkpointed_iteration.txt"
FOLDER = re.compile(r"global_step_(\d+)")
_SHARD = re.compile(r"(?P<kind>.*_world_size_(?P<ranks>\d+)_rank_)(?P<rank>\d+)(?P<ending>\..+)")
"""Paths, below the checkpoint's folder, of the files that each rank of verl's FSDP engines saves."""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """A file's size and hash at the time its checkpoint was complete."""

    bytes: int
    blake2b: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All files of a checkpoint by their path below its folder."""

    step: int
    created: float
    """Seconds since the epoch."""
    files: dict[str, FileRecord]

    def text(self) -> str:
        """Return the file's content, with a hash of itself that detects any change."""
        content = asdict(self)
        content["blake2b"] = hashlib.blake2b(json.dumps(content).encode()).hexdigest()
        return json.dumps(content, indent=2) + "\n"

    @classmethod
    def parse(cls, content: bytes) -> Manifest:
        """Parse the content that `text` returns.

        Raises:
            ValueError: the content is truncated or changed.
        """
        try:
            fields = json.loads(content)
            files = {path: FileRecord(**record) for path, record in fields["files"].items()}
            manifest = cls(step=fields["step"], created=fields["created"], files=files)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError("not readable") from error
        if manifest.text().encode() != content:
            raise ValueError("content changed")
        if not files or type(manifest.step) is not int:
            raise ValueError("names no file, or no step")
        for path in files:
            relative(path)
        if missing := missing_shards(files):
            raise ValueError(f"lacks {missing[0]}: not all ranks' shards are there")
        return manifest


def missing_shards(paths: Iterable[str]) -> list[str]:
    """Return the shards that are missing from ranks 0 to N-1 of each `world_size_N`."""
    found = [match for match in map(_SHARD.fullmatch, paths) if match]
    existing = {match[0] for match in found}
    expected = {
        f"{match['kind']}{rank}{match['ending']}"
        for match in found
        for rank in range(int(match["ranks"]))
    }
    return sorted(expected - existing)


def step_of(folder: Path) -> int:
    """Return the step of a checkpoint's folder.

    Raises:
        ValueError: the folder is not named like a checkpoint.
    """
    match = FOLDER.fullmatch(folder.name)
    if match is None:
        raise ValueError(f"{folder}: not named global_step_N")
    return int(match[1])


def checkpoints_in(checkpoints: Path) -> list[Path]:
    """Return the folders of checkpoints, whole or not, newest first."""
    found = [
        folder for folder in checkpoints.glob("global_step_*") if FOLDER.fullmatch(folder.name)
    ]
    return sorted(found, key=step_of, reverse=True)


def write_manifest(
    folder: Path, *, roles: Sequence[str] = (), patience_s: float = STALE_S + 10
) -> Manifest:
    """Record all files of a written checkpoint, which makes it complete.

    Args:
        roles: subfolders that must not be empty.
        patience_s: seconds to wait for shards of other nodes, since an NFS client's listing may be old.

    Raises:
        CheckpointError: a rank's shard is missing, or a file cannot be read or written.
    """
    ours = {folder / MANIFEST, folder / f"{MANIFEST}.partial"}
    until = time.monotonic() + patience_s
    while True:
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and path not in ours)
        names = [path.relative_to(folder).as_posix() for path in paths]
        missing = missing_shards(names) + [
            f"{role}/*" for role in roles if not any(name.startswith(f"{role}/") for name in names)
        ]
        if not missing or time.monotonic() >= until:
            break
        time.sleep(1)
    if missing:
        more = f" (and {len(missing) - 1} more)" if missing[1:] else ""
        raise CheckpointError(
            f"{folder}: {missing[0]}{more} is not on {socket.gethostname()}: its rank saved it on "
            "another node's disk, and the checkpoint is not complete; set coding.run_dir to a folder "
            "that all nodes share"
        )
    try:
        with _hashing() as pool:
            records = pool.map(_record, paths)
            files = {
                path.relative_to(folder).as_posix(): record
                for path, record in zip(paths, records, strict=True)
            }
        manifest = Manifest(step=step_of(folder), created=time.time(), files=files)
        write_text(folder / MANIFEST, manifest.text())
    except OSError as error:
        raise CheckpointError(f"{folder}: no manifest could be written: {error}") from error
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """Read a checkpoint's manifest.

    Raises:
        FileNotFoundError: there is none, because the checkpoint is incomplete.
        ValueError: the manifest is damaged.
    """
    return Manifest.parse((folder / MANIFEST).read_bytes())


def verify(folder: Path, wanted: Callable[[str], bool] = lambda _: True) -> list[str]:
    """Return the problems of a checkpoint; empty if it is whole.

    It reads the wanted files of the manifest. Later files, such as an exported model, are ignored.
    """
    try:
        manifest = read_manifest(folder)
    except FileNotFoundError:
        return [f"no {MANIFEST}: it was not written to the end"]
    except (ValueError, OSError) as error:
        return [f"{MANIFEST}: {error}"]
    files = [(path, record) for path, record in manifest.files.items() if wanted(path)]
    with _hashing() as pool:
        found = pool.map(lambda item: _problem(folder, *item), files)
        return [problem for problem in found if problem]


def _problem(folder: Path, path: str, recorded: FileRecord) -> str | None:
    try:
        file = below(folder, path)
        size = file.stat().st_size
        if size != recorded.bytes:
            return f"{path}: size {size:,}, not {recorded.bytes:,}"
        return None if _record(file) == recorded else f"{path}: content changed"
    except FileNotFoundError:
        return f"{path}: missing"
    except UnsafeNameError as error:
        return str(error)
    except OSError as error:
        return f"{path}: {error.strerror}"


def _record(path: Path) -> FileRecord:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32))
        return FileRecord(bytes=file.tell(), blake2b=digest.hexdigest())


def _hashing() -> ThreadPoolExecutor:
    """Return a pool that hashes files in parallel: hashing releases the GIL, and one core is too slow."""
    return ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="hash")


def newest_good(checkpoints: Path, say: Say) -> Path | None:
    """Find the newest whole checkpoint, and make verl resume from it by its tracker file.

    Newer ones are moved aside, never deleted. If no checkpoint is whole, the tracker file is removed, so
    verl starts from the beginning.
    """
    damaged: list[tuple[Path, list[str]]] = []
    good = None
    for folder in checkpoints_in(checkpoints):
        if not (problems := verify(folder)):
            good = folder
            break
        damaged.append((folder, problems))
    set_tracker(checkpoints, good)
    then = f"resuming from {good.name}" if good else "none is whole, starting from the beginning"
    for folder, problems in damaged:
        move_aside(folder)
        more = f" and {len(problems) - 1} more" if problems[1:] else ""
        say(f"checkpoint {folder.name} is damaged ({problems[0]}{more}): moved aside, {then}")
    return good


def set_tracker(checkpoints: Path, folder: Path | None) -> None:
    """Set the checkpoint that verl resumes from; None makes it start from the beginning."""
    if folder is None:
        (checkpoints / TRACKER).unlink(missing_ok=True)
    else:
        write_text(checkpoints / TRACKER, str(step_of(folder)))


def move_aside(folder: Path) -> None:
    n = 1
    while (aside := folder.with_name(f"{folder.name}.corrupt{n if n > 1 else ''}")).exists():
        n += 1
    folder.rename(aside)


def remove_shells(checkpoints: Path) -> list[Path]:
    """Delete the remains of old checkpoints after verl's retention has deleted the weights.

    verl deletes the folders `actor` and `critic` of a GRPO checkpoint, each by its own number to keep.
    A checkpoint is such a shell if its manifest names some of these folders and none exists any more.
    """
    shells = []
    for folder in checkpoints_in(checkpoints):
        with suppress(ValueError, OSError):
            roles = {path.split("/")[0] for path in read_manifest(folder).files} & {
                "actor",
                "critic",
            }
            if roles and not any((folder / role).exists() for role in roles):
                shutil.rmtree(folder)
                shells.append(folder)
    return shells


def prune(checkpoints: Path, keep: int) -> None:
    """Delete complete checkpoints except the newest `keep`.

    verl counts only those that it saved since its start, so each restart would leave some behind.
    """
    complete = [folder for folder in checkpoints_in(checkpoints) if (folder / MANIFEST).exists()]
    for folder in complete[keep:]:
        shutil.rmtree(folder)
