"""Go: its compiler and linker as single commands, and the standard library, compiled once.

Programs can use only the standard library, without cgo.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from coding_model_project.errors import ConfigError
from coding_model_project.sandbox.embedded.languages import tools
from coding_model_project.sandbox.embedded.languages.binaries import Binaries, cache_folder
from coding_model_project.sandbox.embedded.languages.build import Recipe
from coding_model_project.sandbox.embedded.languages.kept import make_once
from coding_model_project.sandbox.embedded.launch import Profile
from coding_model_project.types import Limits, Status

_SOURCE, _OBJECT, _PRODUCT = "main.go", "main.a", "program"
_OLDEST = (1, 20)
_COMPILING = ("-p=main", "-complete", "-pack", "-c=1", "-dwarf=false")
_LINKING = ("-buildmode=exe", "-s", "-w")
_OFFLINE = {
    "CGO_ENABLED": "0",
    "GOENV": "off",
    "GOFLAGS": "",
    "GOPROXY": "off",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
    "GO111MODULE": "on",
}
_INDEX = "importcfg"
_LIBRARY_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """The `toolchains.Toolchain` of a Go distribution."""

    version: str
    go: str
    tools_folder: Path
    kept: Path
    """A cache folder with the compiled standard library and its index."""
    maker: str
    """A digest of compiler and options."""
    binaries: Binaries
    profile: Profile = Profile.runtime

    @property
    def readable(self) -> list[str]:
        return [*(str(self.tools_folder / tool) for tool in ("compile", "link")), str(self.kept)]

    def prepare(self) -> None:
        """Compile the standard library, once for all processes: a minute on two cores, 140 MB.

        Raises:
            ConfigError: it does not compile.
        """
        try:
            make_once(self.kept, _INDEX, self._compile_library)
        except (OSError, subprocess.SubprocessError) as error:
            last = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1:]
            raise ConfigError(
                f"go programs do not run here: its standard library does not compile: "
                f"{''.join(last)[-200:]}"
            ) from error

    def recipe(self, limits: Limits, source: bytes) -> Recipe:
        index = f"-importcfg={self.kept / _INDEX}"
        compile_, link = (str(self.tools_folder / tool) for tool in ("compile", "link"))
        return Recipe(
            source=_SOURCE,
            stages=[
                [compile_, *_COMPILING, index, "-o", _OBJECT, _SOURCE],
                [link, *_LINKING, index, "-o", _PRODUCT, _OBJECT],
            ],
            failure=Status.compile_error,
            product=_PRODUCT,
            run=[_PRODUCT],
            maker=self.maker,
        )

    def _compile_library(self, target: Path) -> None:
        """Compile the distribution's own sources: trusted work, not confined.

        Raises:
            OSError, subprocess.SubprocessError: it fails.
        """
        with tempfile.TemporaryDirectory(dir=target.parent) as cache:
            packages = tools.output(
                self.go, "list", "-export", "-trimpath", "-gcflags=all=-dwarf=false",
                "-f={{if .Export}}{{.ImportPath}}={{.Export}}{{end}}", "std",
                folder=Path(cache), timeout_s=_LIBRARY_S, variables={**_OFFLINE, "GOCACHE": cache},
            )  # fmt: skip
            index: list[str] = []
            for number, line in enumerate(filter(None, packages.splitlines())):
                package, _, made = line.partition("=")
                kept = target.parent / f"{number}.a"
                Path(made).replace(kept)
                index.append(f"packagefile {package}={kept}\n")
        partial = target.parent / f".{_INDEX}"
        partial.write_text("".join(index))
        partial.replace(target)


@lru_cache
def find() -> Go | str:
    """Return the Go of this machine, or what is missing and how to get it."""
    go = shutil.which("go")
    if go is None:
        return "go is not installed (https://go.dev/dl)"
    root = tools.output_or_none(go, "env", "GOROOT", variables=_OFFLINE)
    printed = tools.output_or_none(go, "env", "GOVERSION", variables=_OFFLINE) or ""
    version = re.search(r"go(\d+)\.(\d+)", printed)
    if not root or not version:
        return "the version of go cannot be read"
    if (int(version[1]), int(version[2])) < _OLDEST:
        return f"{printed} is too old: 1.{_OLDEST[1]} or later"
    folder = Path(tools.output_or_none(go, "env", "GOTOOLDIR", variables=_OFFLINE) or root)
    if not (folder / "compile").is_file() or not (folder / "link").is_file():
        return f"go has no compile and link in {folder}: install the whole distribution"
    if not Path(root, "src/fmt").is_dir():
        return f"go has no standard library in {root}: install the whole distribution"
    stamps = [tools.stamp(str(folder / tool)) for tool in ("compile", "link")]
    maker = hashlib.sha256(repr((printed, stamps, _COMPILING, _LINKING)).encode()).hexdigest()
    cache = cache_folder()
    return Go(
        version=printed.replace("go", "go ", 1),
        go=go,
        tools_folder=folder,
        kept=cache / f"go-{maker[:16]}",
        maker=maker,
        binaries=Binaries(cache / "binaries"),
    )
