"""A check that the nodes of a run see the same files: the question to each node, and its answer.

The driver writes a token into the run's folder. Each node looks for it, writes its own file beside it,
and compares the other files that the run names. `verl_ext.cluster` communicates with the nodes.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from coding_model_project.errors import ClusterError, ConfigError, StorageError
from coding_model_project.runs.folder import full_disk
from coding_model_project.runs.lease import STALE_S
from coding_model_project.runs.resuming import fingerprint

_PACKAGES = ("coding_model_project", "verl", "vllm", "torch", "transformers", "ray")
_PROBE = ".nodes-"
_END_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The files and versions that a node should check."""

    run_dir: str
    token: str
    facts: Mapping[str, str]
    """Facts of the driver's node: fingerprints of files by `key=path`, versions by package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A node's findings."""

    host: str
    problems: tuple[str, ...]
    """One line each, without the node's name."""
    full_disk: str
    """Empty unless the disk for temporary files is full."""


@contextmanager
def question(run_dir: Path, files: Mapping[str, Path]) -> Iterator[Question]:
    """Keep a token in the run's folder inside the context, and yield the question.

    Args:
        files: other files that every node needs, by the configuration's key and path.
    """
    token = secrets.token_hex(8)
    probe = run_dir / f"{_PROBE}{token}"
    probe.mkdir()
    try:
        (probe / "driver").write_text(token)
        looks = {name: look_of(path) for name, path in files.items()}
        yield Question(run_dir=str(run_dir), token=token, facts=looks | versions())
    finally:
        with suppress(OSError):
            shutil.rmtree(probe)


def look_of(path: Path) -> str:
    """Return a file's fingerprint; for a folder, that of its files' names, sizes and ends.

    Models of one architecture have files of the same sizes. To read whole models would take too long.
    """
    if not path.is_dir():
        return fingerprint(path)
    digest, n_files, n_bytes = hashlib.sha256(), 0, 0
    for file in sorted(path.glob("*")):
        if file.is_file():
            size = file.stat().st_size
            with file.open("rb") as content:
                content.seek(max(0, size - _END_BYTES))
                digest.update(f"{file.name} {size} ".encode() + content.read())
            n_files, n_bytes = n_files + 1, n_bytes + size
    return f"{n_files} files, {n_bytes} bytes, sha256 of their ends {digest.hexdigest()[:16]}"


def versions() -> dict[str, str]:
    """Return the local versions of the packages that all nodes must have in common."""
    found = {}
    for name in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found | {"coding_model_project's source": source()}


def source() -> str:
    """Return a hash of this package's code: nodes often have checkouts with the same version."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(bytes(file.relative_to(root)) + file.read_bytes())
    return digest.hexdigest()[:12]


def answer(question: Question, node: str, *, patience_s: float = STALE_S + 10) -> Answer:
    """Answer a question on the node where this runs.

    Args:
        node: a unique identifier of this node.
        patience_s: seconds for which a shared folder may show an old listing.
    """
    problems, here = list(_in_run_dir(question, node, patience_s)), versions()
    for name, expected in question.facts.items():
        try:
            _, is_file, path = name.partition("=")
            found = look_of(Path(path)) if is_file else here.get(name, "absent")
        except OSError as error:
            found = error.strerror or type(error).__name__
        if found != expected:
            problems.append(f"{name} is {found}, and on the driver's node {expected}")
    full = full_temporary_disk()
    return Answer(host=socket.gethostname(), problems=tuple(problems), full_disk=full)


def full_temporary_disk() -> str:
    """Return a remark if the disk for this node's temporary files is full, else an empty string."""
    return full_disk(Path(tempfile.gettempdir()))


def _in_run_dir(question: Question, node: str, patience_s: float) -> Iterator[str]:
    run_dir = Path(question.run_dir)
    probe = run_dir / f"{_PROBE}{question.token}"
    try:
        if not run_dir.is_dir() or not _comes(lambda: (probe / "driver").exists(), patience_s):
            yield f"coding.run_dir={run_dir} is not the folder that the driver writes into"
            return
        (probe / node).write_text(question.token)
    except OSError as error:
        yield f"coding.run_dir={run_dir} cannot be used ({error.strerror})"


def _comes(there: Callable[[], bool], patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while not there():
        if time.monotonic() >= until:
            return False
        time.sleep(0.5)
    return True


def conclude(
    question: Question,
    answers: Mapping[str, Answer | ClusterError],
    *,
    patience_s: float = STALE_S + 10,
) -> None:
    """Check the answers of all nodes.

    Args:
        answers: by what `answer` was given as `node`; an error, which names the node, if none came.

    Raises:
        ClusterError: some nodes did not answer; names all of them.
        ConfigError: some nodes do not see the same; names all of them and the way out.
        StorageError: a node's disk is full.
    """
    if silent := [str(found) for found in answers.values() if isinstance(found, ClusterError)]:
        raise ClusterError(
            f"{'; '.join(silent)}; see Ray's logs there (/tmp/ray/session_latest/logs), or run "
            "`ray stop` there to train without it"
        )
    came = {node: found for node, found in answers.items() if isinstance(found, Answer)}
    probe = Path(question.run_dir) / f"{_PROBE}{question.token}"
    written = [probe / node for node, found in came.items() if not found.problems]
    _comes(lambda: all(file.exists() for file in written), patience_s)
    wrong: list[str] = []
    for node, found in came.items():
        problems = list(found.problems)
        if not problems and not (probe / node).exists():
            problems = [f"coding.run_dir={question.run_dir}: what it writes is not seen here"]
        wrong += [f"node {found.host}: {problem}" for problem in problems]
    if wrong:
        raise ConfigError(
            f"{'; '.join(wrong)}: a run on several nodes needs one folder that all of them share, and "
            "the same files and packages on each; mount it there, or set the key to a folder that is "
            "shared"
        )
    if full := [
        f"node {found.host}{found.full_disk}" for found in came.values() if found.full_disk
    ]:
        raise StorageError("; ".join(full))
