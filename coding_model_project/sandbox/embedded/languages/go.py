"""Go: its compiler and linker as single commands, and the standard library, compiled once.

Programs can use only the standard library, without cgo.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from functools import lru_cache, partial
from pathlib import Path

from coding_model_project.sandbox.embedded.languages import build
from coding_model_project.sandbox.embedded.languages.build import (
    Recipe,
    Toolchain,
    made_by,
    make_once,
)
from coding_model_project.sandbox.embedded.launch import Profile
from coding_model_project.types import Status

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


def _compile_library(go: str, index: Path) -> None:
    """Compile the standard library from the distribution's own sources, as trusted work, not confined: a
    minute on two cores, 140 MB.

    Raises:
        OSError, subprocess.SubprocessError: it fails.
    """
    with tempfile.TemporaryDirectory(dir=index.parent) as cache:
        packages = build.output(
            go, "list", "-export", "-trimpath", "-gcflags=all=-dwarf=false",
            "-f={{if .Export}}{{.ImportPath}}={{.Export}}{{end}}", "std",
            folder=Path(cache), timeout_s=_LIBRARY_S, variables={**_OFFLINE, "GOCACHE": cache},
        )  # fmt: skip
        lines: list[str] = []
        for number, line in enumerate(filter(None, packages.splitlines())):
            package, _, made = line.partition("=")
            kept = index.parent / f"{number}.a"
            Path(made).replace(kept)
            lines.append(f"packagefile {package}={kept}\n")
    index.write_text("".join(lines))


@lru_cache
def find() -> Toolchain | str:
    """Return the Go of this machine, or what is missing and how to get it."""
    go = shutil.which("go")
    if go is None:
        return "go is not installed (https://go.dev/dl)"
    root = build.output_or_none(go, "env", "GOROOT", variables=_OFFLINE)
    printed = build.output_or_none(go, "env", "GOVERSION", variables=_OFFLINE) or ""
    version = re.search(r"go(\d+)\.(\d+)", printed)
    if not root or not version:
        return "the version of go cannot be read"
    if (int(version[1]), int(version[2])) < _OLDEST:
        return f"{printed} is too old: 1.{_OLDEST[1]} or later"
    folder = Path(build.output_or_none(go, "env", "GOTOOLDIR", variables=_OFFLINE) or root)
    if not (folder / "compile").is_file() or not (folder / "link").is_file():
        return f"go has no compile and link in {folder}: install the whole distribution"
    if not Path(root, "src/fmt").is_dir():
        return f"go has no standard library in {root}: install the whole distribution"
    compile_, link = commands = [str(folder / tool) for tool in ("compile", "link")]
    stamps = list(map(build.stamp, commands))
    maker, kept = made_by("go", printed, stamps, _COMPILING, _LINKING)
    index = f"-importcfg={kept / _INDEX}"
    recipe = Recipe(
        source=_SOURCE,
        stages=[
            [compile_, *_COMPILING, index, "-o", _OBJECT, _SOURCE],
            [link, *_LINKING, index, "-o", _PRODUCT, _OBJECT],
        ],
        failure=Status.compile_error,
        product=_PRODUCT,
        run=[_PRODUCT],
        maker=maker,
    )
    return Toolchain(
        version=printed.replace("go", "go ", 1),
        readable=[*commands, str(kept)],
        recipe=lambda _limits, _source: recipe,
        prepare=partial(make_once, kept, _INDEX, partial(_compile_library, go)),
        unprepared="its standard library does not compile",
        profile=Profile.runtime,
    )
