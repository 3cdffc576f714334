"""javac and java: a compiler and a virtual machine (VM), each one process with threads.

The product is an archive of the classes. The VM itself limits the heap, so that garbage is collected
before the limit is reached; memory of the VM and of deep recursion comes on top. A source's types say
what its file must be called, and which class has `main`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
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
from coding_model_project.types import Limits, Status

_OLDEST = 17
_CLASSES, _PRODUCT = ".classes", "program.jar"
_STACK_MB = 64
"""Stack of the main thread, as on common judges."""
_UNWINDING_MB = 4 * _STACK_MB
"""Memory with which the VM unwinds an overflowing stack of compiled frames, measured with OpenJDK 17:
the program must end with StackOverflowError, not at the memory limit."""
_THREADS_STACK_KB = 1024
"""Stack of threads that the program starts without a size: the VM's default."""
_LEAST_HEAP_MB = 8
"""The VM does not start with a smaller heap."""
_MACHINE_MB = 160
"""Memory besides the heap: classes, compiled code, buffers, the VM's own memory."""

_MACHINE = (
    "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto", "-XX:-UseContainerSupport",
    "-XX:+DisplayVMOutputToStderr",
)  # fmt: skip
"""One thread collects garbage; nothing is written to /tmp; the VM's own classes are mapped ready to use;
limits are ours; warnings do not mix with the program's output."""

_RUNNING = (
    "-XX:+ExitOnOutOfMemoryError", "-XX:-CreateCoredumpOnCrash", "-XX:ErrorFile=/dev/null",
    f"-Xss{_STACK_MB}m", f"-XX:ThreadStackSize={_THREADS_STACK_KB}", "-Dfile.encoding=UTF-8",
    "-XX:MaxJavaStackTraceDepth=30",
)  # fmt: skip
"""-Xss is for the thread of `main`; ThreadStackSize is for all others. Stack traces are short enough that
the kept end of standard error includes the message above them."""

_COMPILING = (
    "-proc:none", "-nowarn", "-Xlint:none", "-XDuseUnsharedTable=true", "-encoding", "UTF-8", "-d",
    _CLASSES,
)  # fmt: skip
_COMPILER_HEAP = "-Xmx320m"
_ARCHIVE = "javac.jsa"
_ARCHIVE_S = 120.0
_WARM_UP = """import java.util.*;
import java.util.function.*;
import java.util.stream.*;
public class Main {
    record Pair(int a, String b) {}
    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        Map<String, List<Integer>> all = new TreeMap<>();
        for (int i = 0; i < 3; i++) all.computeIfAbsent("" + i, k -> new ArrayList<>()).add(i);
        System.out.println(all.values().stream().map(List::size).collect(Collectors.toList()));
        System.out.println(new Pair(1, "x"));
    }
}
"""


def _archive(java: list[str], target: Path) -> None:
    """Archive the compiler's classes that a trusted program needs; not confined.

    Raises:
        OSError, subprocess.SubprocessError: the compiler fails.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as name:
        folder = Path(name)
        (folder / "Main.java").write_text(_WARM_UP)
        command = _javac(java, [f"-XX:ArchiveClassesAtExit={target}"])
        build.output(*command, "Main.java", folder=folder, timeout_s=_ARCHIVE_S)


def _javac(java: list[str], options: list[str]) -> list[str]:
    # The VM's quickest JIT compiler: javac ends before the other one would pay off.
    machine = [_COMPILER_HEAP, *_MACHINE, "-XX:TieredStopAtLevel=1", *options]
    return [*java, *machine, "-m", "jdk.compiler/com.sun.tools.javac.Main", *_COMPILING]


def _recipe(java: list[str], kept: Path, maker: str, limits: Limits, source: bytes) -> Recipe:
    file, main = names_of(source.decode("utf-8", "replace"))
    shared = kept / _ARCHIVE
    archive = [f"-XX:SharedArchiveFile={shared}"] if shared.exists() else []
    heap = f"-Xmx{max(limits.memory_mb, _LEAST_HEAP_MB)}m"
    return Recipe(
        source=file,
        stages=[[*_javac(java, archive), file]],
        failure=Status.compile_error,
        product=_PRODUCT,
        packs=_CLASSES,
        run=[*java, heap, *_MACHINE, *_RUNNING, "-cp", _PRODUCT, main],
        overhead_mb=_MACHINE_MB + _STACK_MB + _UNWINDING_MB,
        maker=maker,
    )


@lru_cache
def find() -> Toolchain | str:
    """Return the Java of this machine, or what is missing and how to get it."""
    javac = build.which("javac")
    if javac is None:
        has_java = " (there is a java without javac)" if shutil.which("java") else ""
        return f"a Java development kit, {_OLDEST} or later, is not installed{has_java}"
    home = Path(javac).parent.parent
    java = home / "bin/java"
    if not java.is_file() or not (home / "lib/modules").is_file():
        return f"the Java development kit of {javac} is incomplete: no bin/java or lib/modules"
    printed = build.output_or_none(str(java), "--version") or ""
    version = re.search(r"(\d+)[\d._]*", printed)
    if not version:
        return f"the version of {java} cannot be read"
    if int(version[1]) < _OLDEST:
        return f"Java {version[0]} is too old: {_OLDEST} or later"
    maker, kept = made_by("java", printed, build.stamp(javac), _COMPILING)
    # Through the loader: without /proc, java cannot find its own path.
    command = build.through_loader(java, home / "lib")
    return Toolchain(
        version=f"java {version[0]}",
        readable=[str(home), *_linked(home), str(kept)],
        recipe=partial(_recipe, command, kept, maker),
        prepare=partial(make_once, kept, _ARCHIVE, partial(_archive, command)),
        profile=Profile.runtime,
    )


def _linked(home: Path) -> list[str]:
    """Return the folders outside a kit into which its files link, such as Debian's in /etc."""
    found: dict[str, None] = {}
    for name in ("lib/jvm.cfg", "conf/security/java.security", "lib/security/default.policy"):
        real = (home / name).resolve()
        if real.exists() and not real.is_relative_to(home.resolve()):
            found[str(real.parent)] = None
    return list(found)


_HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?(?:\*/|\Z)|"""(?:\\.|.)*?(?:"""|\Z)|"(?:\\.|[^"\\\n])*(?:"|$)'
    r"|'(?:\\.|[^'\\\n])*(?:'|$)",
    re.S | re.M,
)
"""Comments and literals, whose words and braces do not count. Each alternative also matches an unclosed
one to its end, so that matching never restarts from the middle of it."""

_TOKEN = re.compile(r"[{}();]|[\w.$]+")
_KINDS = frozenset(["class", "interface", "enum", "record"])
_PACKAGE = re.compile(r"^[ \t]*package\s+([\w.]+)\s*;", re.M)
_IDENTIFIER = re.compile(r"[^\W\d][\w$]*")
_DEFAULT = "Main"
_LONGEST = 200
"""Most bytes of a name that can also be a file's."""


@dataclass(slots=True, kw_only=True)
class _Type:
    """A top-level type."""

    name: str
    is_public: bool
    has_main: bool = False


def names_of(source: str) -> tuple[str, str]:
    """Return the name of a source's file, and of the class with `main`, with its package.

    javac requires the name of a public class for the file. Of classes with a `main`, prefer `Main`, then
    the public one.
    """
    text = _HIDDEN.sub(" ", source)
    types = _types(text)
    public = next((found.name for found in types if found.is_public), None)
    order = sorted(types, key=lambda found: (found.name != _DEFAULT, found.name != public))
    started = next((found.name for found in order if found.has_main), None)
    main = started or public or (types[0].name if types else _DEFAULT)
    package = _PACKAGE.search(text)
    return f"{public or main}.java", f"{package[1]}.{main}" if package else main


def _types(text: str) -> list[_Type]:
    types: list[_Type] = []
    before: list[str] = []
    """Words since the last type or statement, outside blocks and parentheses."""
    blocks = parentheses = 0
    last = ("", "")
    for token in _TOKEN.findall(text):
        if token == "(" and last == ("void", "main") and blocks == 1 and types:
            types[-1].has_main = True
        last = (last[1], token)
        parentheses += {"(": 1, ")": -1}.get(token, 0)
        if token == "{":
            if blocks == 0 and (named := _named(before)):
                types.append(_Type(name=named, is_public="public" in before))
            blocks += 1
        elif token == "}":
            blocks = max(0, blocks - 1)
        if token in ("{", "}", ";"):
            before, parentheses = [], 0
        elif blocks == 0 and parentheses == 0:
            before.append(token)
    return types


def _named(words: list[str]) -> str | None:
    """Return the word after the first `class`, `interface`, `enum` or `record`."""
    at = next((n for n, word in enumerate(words) if word in _KINDS), len(words))
    name = words[at + 1] if at + 1 < len(words) else ""
    is_name = _IDENTIFIER.fullmatch(name) and len(name.encode()) <= _LONGEST
    return name if is_name else None
