"""The working tree as a package: all files that git tracks or does not ignore, with their origin.

The package also contains `.job_source/`: commit, branch and hash (`state.json`), and one patch of all
uncommitted changes (`uncommitted.patch`). `runs.provenance` reads them, since the package has no `.git`.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from coding_model_project.contained import leaves
from coding_model_project.errors import ConfigError
from coding_model_project.runs.provenance import SHIPPED, SHIPPED_PATCH, SHIPPED_STATE

_EPOCH = (1980, 1, 1, 0, 0, 0)
_N_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A snapshot of a working tree."""

    root: Path
    files: tuple[str, ...]
    commit: str
    branch: str
    patch: bytes
    """Patch for `git apply` on the commit; includes untracked files."""

    @property
    def patch_hash(self) -> str:
        """Return the SHA-256 of the patch; empty if everything is committed."""
        return hashlib.sha256(self.patch).hexdigest() if self.patch else ""


def read_source(start: Path, *, max_mb: float) -> Source:
    """Read the working tree that contains a folder.

    Args:
        max_mb: limit of the total size of its files.

    Raises:
        ConfigError: it is not a git working tree with a commit, has a link out of it, or exceeds the
            limit; the message names the link or the largest files.
    """
    top = _git(start, "rev-parse", "--show-toplevel")
    commit = top and _git(start, "rev-parse", "--verify", "--quiet", "HEAD")
    if not top or not commit:
        raise ConfigError(
            f"--repo={start}: not a git working tree with a commit, and a job ships what git knows; "
            "give the folder of a clone"
        )
    root = Path(top.decode().strip())
    files = _listed(root, "--cached", "--others")
    for name in files:
        if (root / name).is_symlink() and leaves(root, root / name):
            raise ConfigError(
                f"--repo={root}: {name} is a link out of the working tree, and jobs ship copies; replace "
                "it by a copy, or add it to .gitignore"
            )
    _refuse_large(root, files, max_mb)
    return Source(
        root=root,
        files=files,
        commit=commit.decode().strip(),
        branch=_git(root, "rev-parse", "--abbrev-ref", "HEAD").decode().strip(),
        patch=_patch(root),
    )


def write_package(source: Source, path: Path) -> None:
    """Write the package as a zip file; equal trees produce equal bytes."""
    state = {
        "commit": source.commit,
        "branch": source.branch,
        "dirty": bool(source.patch),
        "patch_sha256": source.patch_hash,
    }
    with ZipFile(path, "w", ZIP_DEFLATED) as package:
        for name in source.files:
            file = source.root / name
            entry = ZipInfo(name, _EPOCH)
            entry.external_attr = (file.stat().st_mode & 0xFFFF) << 16
            package.writestr(entry, file.read_bytes(), ZIP_DEFLATED)
        package.writestr(ZipInfo(f"{SHIPPED}/{SHIPPED_STATE}", _EPOCH), json.dumps(state))
        package.writestr(ZipInfo(f"{SHIPPED}/{SHIPPED_PATCH}", _EPOCH), source.patch)


def _listed(root: Path, *which: str) -> tuple[str, ...]:
    """Return the files of `git ls-files` that exist on disk."""
    names = _git(root, "ls-files", "-z", "--exclude-standard", *which).split(b"\0")
    found = sorted({os.fsdecode(name) for name in names if name})
    return tuple(name for name in found if (root / name).is_file())


def _refuse_large(root: Path, files: tuple[str, ...], max_mb: float) -> None:
    sizes = {name: (root / name).stat().st_size for name in files}
    total = sum(sizes.values()) / 1e6
    if total <= max_mb:
        return
    untracked = set(_listed(root, "--others"))
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:_N_NAMED]
    named = ", ".join(
        f"{name} ({sizes[name] / 1e6:.1f} MB{', untracked' if name in untracked else ''})"
        for name in largest
    )
    raise ConfigError(
        f"--max-package-mb={max_mb:g}: the working tree {root} has {total:.0f} MB that git does not "
        f"ignore (largest: {named}); add them to .gitignore, move them, or raise the limit"
    )


def _patch(root: Path) -> bytes:
    """Return one patch of all uncommitted changes, made with a temporary index and object folder."""
    with tempfile.TemporaryDirectory(prefix="job-index-") as folder:
        real = _git(root, "rev-parse", "--path-format=absolute", "--git-path", "objects")
        environment = {
            "GIT_INDEX_FILE": f"{folder}/index",
            "GIT_OBJECT_DIRECTORY": folder,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": real.decode().strip(),
        }
        for command in (("read-tree", "HEAD"), ("add", "--all")):
            _git(root, *command, environment=environment)
        # Plumbing, since a user's diff.noprefix, color.ui or diff.external would spoil the patch.
        plumbing = (
            "diff-index",
            "--cached",
            "--patch",
            "--binary",
            "--no-ext-diff",
            "--no-textconv",
        )
        return _git(root, *plumbing, "HEAD", environment=environment)


def _git(cwd: Path, *arguments: str, environment: dict[str, str] | None = None) -> bytes:
    """Return a git command's output; empty if `rev-parse` fails.

    Raises:
        ConfigError: git cannot run, or another command fails.
    """
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=cwd,
            capture_output=True,
            check=False,
            env={**os.environ, **(environment or {})},
        )
    except OSError as error:
        raise ConfigError(f"--repo={cwd}: git cannot run there ({error.strerror})") from error
    if done.returncode and arguments[0] != "rev-parse":
        message = done.stderr.decode(errors="replace").strip()
        raise ConfigError(f"--repo={cwd}: git {arguments[0]} failed ({message})")
    return done.stdout if done.returncode == 0 else b""
