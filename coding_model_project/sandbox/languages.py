"""The languages that sandboxes run, in one table: names, file extensions, and a program to try each."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from coding_model_project.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A language besides Python."""

    name: str
    hello: str
    """A program that prints "hello"."""
    aliases: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    on_servers: str | None = None
    """Its name on SandboxFusion servers; None if they do not run it."""
    many_threads: bool = False
    """True if its runtime starts many threads, which a limit on stacks would prevent."""

    def __str__(self) -> str:
        return self.name


LANGUAGES = {
    one.name: one
    for one in (
        Language(
            name="c",
            hello='#include <stdio.h>\nint main(void) { printf("hello"); }',
            extensions=(".c",),
        ),
        Language(
            name="cpp",
            hello='#include <bits/stdc++.h>\nint main() { std::cout << "hello"; }',
            aliases=("c++",),
            extensions=(".cpp", ".cc", ".cxx"),
            on_servers="cpp",
        ),
        Language(
            name="javascript",
            hello='console.log("hello")',
            aliases=("js", "node", "nodejs"),
            extensions=(".js", ".mjs"),
            on_servers="nodejs",
            many_threads=True,
        ),
        Language(
            name="java",
            hello='class Main { public static void main(String[] a) { System.out.print("hello"); } }',
            extensions=(".java",),
            on_servers="java",
            many_threads=True,
        ),
        Language(
            name="go",
            hello='package main\nimport "fmt"\nfunc main() { fmt.Print("hello") }',
            aliases=("golang",),
            extensions=(".go",),
            on_servers="go",
            many_threads=True,
        ),
        Language(
            name="rust",
            hello='fn main() { print!("hello") }',
            aliases=("rs",),
            extensions=(".rs",),
            on_servers="rust",
        ),
        Language(
            name="bash",
            hello="echo hello | cat",
            aliases=("sh", "shell"),
            extensions=(".sh", ".bash"),
            on_servers="bash",
        ),
        Language(name="perl", hello='print "hello";', extensions=(".pl",), on_servers="perl"),
        Language(name="lua", hello='print("hello")', extensions=(".lua",), on_servers="lua"),
        Language(name="ruby", hello='print "hello"', extensions=(".rb",), on_servers="ruby"),
        Language(name="php", hello='<?php echo "hello";', extensions=(".php",), on_servers="php"),
        Language(
            name="typescript",
            hello='const word: string = "hello"; console.log(word)',
            aliases=("ts",),
            extensions=(".ts",),
            on_servers="typescript",
            many_threads=True,
        ),
        Language(
            name="julia",
            hello='print("hello")',
            extensions=(".jl",),
            on_servers="julia",
            many_threads=True,
        ),
        Language(
            name="kotlin",
            hello='println("hello")',
            extensions=(".kts",),
            on_servers="kotlin_script",
            many_threads=True,
        ),
        Language(
            name="csharp",
            hello='class Hello { static void Main() { System.Console.Write("hello"); } }',
            aliases=("c#", "cs"),
            extensions=(".cs",),
            on_servers="csharp",
            many_threads=True,
        ),
    )
}

_BY_NAME = {
    name: one
    for one in LANGUAGES.values()
    for name in (one.name, *one.aliases, *filter(None, [one.on_servers]))
}

EXTENSIONS = {
    ".py": "python",
    **{suffix: one.name for one in LANGUAGES.values() for suffix in one.extensions},
}
"""Names of languages by file extension."""


def named(name: str) -> Language:
    """Return the language of this name or alias.

    Raises:
        ConfigError: there is none.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    if name.lower() in ("python", *_BY_NAME):
        raise ConfigError(f"language={name}: language names are lower case; use {name.lower()}")
    near = get_close_matches(name.lower(), ("python", *_BY_NAME), n=1)
    raise ConfigError(
        f"language={name}: no such language{f'; did you mean {near[0]}?' if near else ''}; there are "
        f"python, {', '.join(LANGUAGES)}"
    )
