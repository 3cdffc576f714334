"""Remote copies of checkpoints: uploaded in the background, verified, and restored at a restart.

`URL/owner.json` has the configuration and inputs of the run whose checkpoints are there, with secrets
masked, and a new id for each start. No other run resumes from them. `CheckpointStore.upload` compares it
with the copy here, so a start that took the URL later ends the uploads of an earlier one.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from coding_model_project.contained import below
from coding_model_project.errors import CheckpointError, ConfigError
from coding_model_project.runs.checkpoints import (
    FOLDER,
    MANIFEST,
    Manifest,
    Say,
    checkpoints_in,
    move_aside,
    newest_good,
    prune,
    read_manifest,
    set_tracker,
    step_of,
    verify,
)
from coding_model_project.runs.masking import made_ours, masked, secrets_of
from coding_model_project.runs.resuming import Inputs, changes, comparable, listed, settings_changed
from coding_model_project.storage.object_store import ObjectStore
from coding_model_project.storage.store_errors import is_transport_fault, shortly_explained

OWNER = "owner.json"
"""Record of the run whose checkpoints are at a URL, and its copy beside the local ones."""


def open_store(config: DictConfig, say: Say) -> CheckpointStore | None:
    """Open the store that `coding.checkpoints` names, if any.

    Raises:
        ConfigError: its URL cannot be used, or `keep` is too small.
    """
    chosen = config.coding.checkpoints
    return None if chosen.url is None else CheckpointStore(chosen.url, chosen.keep, say)


def prepare_resume(
    checkpoints: Path, store: CheckpointStore | None, say: Say, keep: int | None = None
) -> Path | None:
    """Prepare the checkpoints before verl starts.

    Damaged ones are moved aside, and a newer complete one in the store is fetched.

    Args:
        keep: number of local checkpoints to keep; None keeps all.

    Returns:
        The checkpoint that verl will resume from; None if it starts from the beginning.

    Raises:
        CheckpointError: the store cannot be reached.
    """
    good = newest_good(checkpoints, say)
    if keep:
        prune(checkpoints, keep)
    return (store and store.download_newest(checkpoints)) or good


class CheckpointStore:
    """Copies of a run's checkpoints under an fsspec URL: s3://, gs://, file://, ...

    `URL/global_step_N/` is complete once it has its manifest, which is written last and deleted first.
    `URL/owner.json` records the run; only one may write to a URL at a time.
    """

    def __init__(self, url: str, keep: int, say: Say) -> None:
        """Open the store.

        Args:
            keep: number of complete checkpoints to keep, the newest ones.

        Raises:
            ConfigError: the protocol is unknown, or its package is not installed.
        """
        if keep < 1:
            raise ConfigError(f"coding.checkpoints.keep={keep}: must be at least 1")
        try:
            self._store = ObjectStore(url, "checkpoint store")
        except ConfigError as error:
            raise ConfigError(f"coding.checkpoints.url={error}") from error
        self.url = self._store.url
        self._keep = keep
        self._say = say
        self._damaged: dict[int, Manifest] = {}
        self._owner: bytes | None = None
        """This start's record; empty if it has none, None until it was read."""

    def steps(self) -> list[int]:
        """Return the steps of complete checkpoints, newest first.

        Raises:
            CheckpointError: the store failed, also after retries.
        """
        with self._errors("they cannot be read"):
            return [step for step in self._all_steps() if self._manifest(step)]

    def read_owner(self) -> bytes | None:
        """Return the record of the run that wrote the checkpoints (`claim`), if any.

        Raises:
            CheckpointError: the store failed, also after retries.
        """
        with self._errors(f"{OWNER} cannot be read"):
            return self._store.read(OWNER)

    def take(self, owner: bytes, checkpoints: Path) -> None:
        """Record the run that uploads from a folder; another one that does so ends its uploads.

        Raises:
            ConfigError: writing failed for a reason that the user can correct.
            CheckpointError: the store failed, also after retries.
        """
        with self._errors(f"{OWNER} cannot be written", by_user=True):
            self._store.write(OWNER, owner)
            checkpoints.mkdir(parents=True, exist_ok=True)
            (checkpoints / OWNER).write_bytes(owner)

    def check_writable(self) -> None:
        """Write a small object and delete it, so that a misconfiguration fails before training.

        Raises:
            ConfigError: writing failed for a reason that the user can correct.
            CheckpointError: the store failed, also after retries.
        """
        with self._errors("they cannot be written", by_user=True):
            self._store.check_writable()

    def copy(self, step: int, checkpoints: Path, wanted: Callable[[str], bool]) -> Path | None:
        """Copy some files of a complete checkpoint and its manifest.

        Returns:
            The copy; None if the checkpoint was pruned or replaced meanwhile, or if it is damaged, which
            is printed once.

        Raises:
            CheckpointError: the store failed, also after retries.
        """
        with self._errors(f"{_name(step)} could not be copied"):
            if (partial := self._fetched(step, checkpoints, wanted)) is None:
                return None
            return partial.rename(checkpoints / _name(step))

    def upload(self, folder: Path) -> None:
        """Upload a checkpoint, then delete the oldest ones; a failed deletion is only printed.

        Raises:
            CheckpointError: the store failed, also after retries, a local file is gone, or another start
                has taken the URL.
        """
        self._check_owner(folder.parent)
        with self._errors(f"{folder.name} could not be uploaded"):
            manifest = read_manifest(folder)
            is_there = self._manifest(manifest.step) == manifest
            if not is_there:
                self._remove(manifest.step)
                for path, record in manifest.files.items():
                    self._store.put(below(folder, path), f"{folder.name}/{path}", record.bytes)
        self._check_owner(folder.parent)  # again: the files may have taken minutes
        with self._errors(f"{folder.name} could not be uploaded"):
            if not is_there:
                size = len(manifest.text())
                self._store.put(folder / MANIFEST, f"{folder.name}/{MANIFEST}", size)
        try:
            with self._errors("old ones could not be deleted"):
                self._retain()
        except CheckpointError as error:  # the next upload tries again
            self._say(str(error))

    def download_newest(self, checkpoints: Path) -> Path | None:
        """Restore the newest complete checkpoint if it is newer than all complete local ones.

        Local checkpoints are not verified: call `newest_good` first. Damaged remote ones are printed and
        skipped.

        Raises:
            CheckpointError: the store failed, also after retries.
        """
        complete = (one for one in checkpoints_in(checkpoints) if (one / MANIFEST).exists())
        newest_here = max(map(step_of, complete), default=-1)
        with self._errors("no checkpoint could be restored"):
            for step in self.steps():
                if step > newest_here and (folder := self._restore(step, checkpoints)):
                    return folder
        return None

    def _restore(self, step: int, checkpoints: Path) -> Path | None:
        folder = checkpoints / _name(step)
        if (partial := self._fetched(step, checkpoints, lambda _: True)) is None:
            return None
        if folder.exists():
            move_aside(folder)
        partial.rename(folder)
        set_tracker(checkpoints, folder)
        self._say(f"checkpoint {folder.name} restored from {self.url}: resuming from it")
        return folder

    def _fetched(self, step: int, checkpoints: Path, wanted: Callable[[str], bool]) -> Path | None:
        """Return a verified copy under a temporary name; None as for `copy`."""
        name = _name(step)
        partial = checkpoints / f".fetching_{name}"
        shutil.rmtree(partial, ignore_errors=True)
        manifest = self._manifest(step)
        if manifest is None or self._damaged.get(step) == manifest:
            return None
        for path in [*filter(wanted, manifest.files), MANIFEST]:
            target = below(partial, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # `verify` reports it
                self._store.get(f"{name}/{path}", target)
        problems = verify(partial, wanted)
        if not problems:
            return partial
        shutil.rmtree(partial)
        if self._manifest(step) == manifest:  # else another process pruned or replaced it meanwhile
            self._damaged[step] = manifest
            self._say(f"checkpoint {name} at {self.url} is damaged ({problems[0]}): skipped")
        return None

    def _retain(self) -> None:
        complete = self.steps()
        for step in self._all_steps():
            # Also remove older incomplete ones: nothing will complete them.
            if step < complete[0] and step not in complete[: self._keep]:
                self._remove(step)

    def _all_steps(self) -> list[int]:
        folders = {path.partition("/")[0] for path in self._store.entries()}
        found = map(FOLDER.fullmatch, folders)
        return sorted((int(match[1]) for match in found if match), reverse=True)

    def _manifest(self, step: int) -> Manifest | None:
        content = self._store.read(f"{_name(step)}/{MANIFEST}")
        try:
            return None if content is None else Manifest.parse(content)
        except ValueError:
            return None

    def _remove(self, step: int) -> None:
        self._store.remove(f"{_name(step)}/{MANIFEST}")
        self._store.remove_below(_name(step))

    def _check_owner(self, checkpoints: Path) -> None:
        if self._owner is None:  # read once: a start that takes the run over replaces it
            own = checkpoints / OWNER
            with self._errors(f"{OWNER} cannot be read"):
                self._owner = own.read_bytes() if own.exists() else b""
        found = self.read_owner()
        if self._owner and found and found != self._owner:
            raise CheckpointError(
                f"checkpoints at {self.url}: another start has taken this URL ({OWNER} there): end one "
                "of them, or set another coding.checkpoints.url"
            )

    @contextmanager
    def _errors(self, what: str, *, by_user: bool = False) -> Iterator[None]:
        """Turn any error into CheckpointError: libraries' own errors are not all OSErrors.

        Args:
            by_user: whether the user can correct one that is not the store's outage: a ConfigError.
        """
        try:
            yield
        except CheckpointError:
            raise
        except Exception as error:
            corrected = by_user and not is_transport_fault(error)
            why = shortly_explained(error, self.url)
            kind = ConfigError if corrected else CheckpointError
            raise kind(f"checkpoints at {self.url}: {what}: {why}") from error


def _name(step: int) -> str:
    return f"global_step_{step}"


class BackgroundUploader:
    """A thread that uploads checkpoints, newest first, so that training does not wait."""

    def __init__(self, store: CheckpointStore, say: Say) -> None:
        self._store = store
        self._say = say
        self._queue: queue.Queue[Path | None] = queue.Queue()
        self._newest = self._uploaded = -1
        self._error: CheckpointError | None = None
        self._thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        self._thread.start()

    def submit(self, folder: Path) -> None:
        """Queue a complete checkpoint."""
        self._newest = max(self._newest, step_of(folder))
        self._queue.put(folder)

    def close(self, timeout_s: float) -> None:
        """Wait for pending uploads, and retry failed ones once.

        Raises:
            CheckpointError: the newest checkpoint is not in the store.
        """
        self._queue.put(None)
        self._thread.join(timeout_s)
        if self._uploaded < self._newest:
            name = f"checkpoints at {self._store.url}: global_step_{self._newest}"
            if self._thread.is_alive():
                raise CheckpointError(f"{name} is still being uploaded after {timeout_s:.0f} s")
            raise self._error or CheckpointError(f"{name} was not uploaded")

    def _run(self) -> None:
        waiting: list[Path] = []
        while (folder := self._queue.get()) is not None:
            waiting.append(folder)
            self._work_off(waiting)
        self._work_off(waiting)

    def _work_off(self, waiting: list[Path]) -> None:
        """Upload until one fails; the next checkpoint or `close` retries that one."""
        for folder in sorted(waiting, key=step_of, reverse=True):
            # A checkpoint queued in the meantime is newer and goes first.
            if not self._queue.empty() or not self._is_settled(folder):
                return
            waiting.remove(folder)

    def _is_settled(self, folder: Path) -> bool:
        try:
            self._store.upload(folder)
        except CheckpointError as error:
            if step_of(folder) < self._newest and _is_gone(folder):
                self._say(
                    f"checkpoint {folder.name} was deleted here before it was uploaded: skipped"
                )
                return True
            self._error = error
            self._say(f"{error}; retrying with the next checkpoint")
            return False
        self._uploaded = max(self._uploaded, step_of(folder))
        self._error = None
        return True


def _is_gone(folder: Path) -> bool:
    """Return whether verl's retention has begun to delete a checkpoint."""
    try:
        return any(not (folder / path).exists() for path in read_manifest(folder).files)
    except (ValueError, OSError):
        return True


_FREE = re.compile(r"trainer\.resume_(mode|from_path)|.*attn_implementation")
"""Keys that differ between starts and machines of the same run."""
_REVISION = " revision"
"""End of the input's name for a model of the hub, which is absent until it has been downloaded."""


def claim(
    store: CheckpointStore, config: DictConfig, inputs: Inputs, checkpoints: Path, *, force: bool
) -> None:
    """Refuse a URL with another run's checkpoints, else record this run there.

    Runs are the same if they may resume in the same folder (`resuming`); the folder itself may differ.
    Checkpoints without a record, of an older version, are accepted.

    Args:
        checkpoints: the folder that they are uploaded from.
        force: accept another run's checkpoints.

    Raises:
        ConfigError: another run's checkpoints are there (with the differences), the record is damaged,
            or it cannot be written.
        CheckpointError: the store does not answer.
    """
    record = _record(config, inputs)
    content = store.read_owner() if not force and store.steps() else None
    if content is not None and (changed := _changes(content, config, record["inputs"], store.url)):
        raise ConfigError(
            f"coding.checkpoints.url={store.url}: has checkpoints of another run ({listed(changed)}): "
            "set another URL, or coding.force=true to resume from them"
        )
    store.take(json.dumps(record, indent=2).encode(), checkpoints)


def _record(config: DictConfig, inputs: Inputs) -> dict[str, Any]:
    plain = OmegaConf.to_container(OmegaConf.create(comparable(config)))
    secrets = secrets_of(plain, os.environ)
    return {
        "id": uuid.uuid4().hex,
        "config": OmegaConf.to_yaml(OmegaConf.create(_masked(plain, secrets))),
        "inputs": {_masked(name, secrets): text for name, text in inputs.items()},
        "cwd": _masked(str(Path.cwd()), secrets),
    }


def _masked(node: Any, secrets: tuple[bytes, ...]) -> Any:
    """Mask secrets in values before they are formatted, which may break a secret up."""
    if isinstance(node, dict):
        return {key: _masked(value, secrets) for key, value in node.items()}
    if isinstance(node, list):
        return [_masked(value, secrets) for value in node]
    return os.fsdecode(masked(os.fsencode(node), secrets)) if isinstance(node, str) else node


def _changes(content: bytes, config: DictConfig, now: Inputs, url: str) -> list[str]:
    """Return the settings, else the inputs, in which this run differs from the recorded one.

    Args:
        now: this run's inputs, with secrets masked.

    Raises:
        ConfigError: the record is damaged.
    """
    try:
        owner = json.loads(content)
        recorded = made_ours(owner["config"], comparable(config), owner)
        settings = [
            line
            for line in settings_changed(recorded, config)
            if not _FREE.fullmatch(line.partition(": ")[0])
        ]
        before = dict(owner["inputs"])
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        YAMLError,
        OmegaConfBaseException,
    ) as error:
        raise ConfigError(
            f"coding.checkpoints.url={url}: {OWNER} there is not the record of a run "
            f"({type(error).__name__}): delete it, or set coding.force=true"
        ) from error
    unknown = {name for name in before.keys() ^ now.keys() if name.endswith(_REVISION)}
    shared = ({n: one[n] for n in one if n not in unknown} for one in (before, now))
    return settings or changes(*shared)
