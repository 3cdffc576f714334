"""Processes that the sandboxes of a test have started."""

from collections.abc import Iterator

import psutil


def below(word: str) -> list[psutil.Process]:
    """This process's children with `word` in their command line, each before all that it started.

    Not all its children: Ray's may be among them when training tests ran before, and who kills one
    of those ends the whole test run. A process that has just ended may be a zombie until its
    parent has waited for it: it is not counted.
    """
    return [each for child in psutil.Process().children() for each in _tree(child, word)]


def _tree(child: psutil.Process, word: str) -> Iterator[psutil.Process]:
    try:
        if any(word in each for each in child.cmdline()):
            yield from (child, *child.children(recursive=True))
    except psutil.Error:
        return
