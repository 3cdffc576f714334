"""Files passed to a program as arguments; their location depends on the tier."""

from __future__ import annotations

import os
from typing import NamedTuple

from coding_model_project.isolation import linux
from coding_model_project.isolation.confine import Tier
from coding_model_project.sandbox.embedded.frames import Head

FIRST = 4
"""The first descriptor of these files; lower ones are the standard streams and the answer."""


class Given(NamedTuple):
    """Files in the working directory, or open in memory at tiers without one."""

    paths: list[str]
    files: dict[str, bytes]
    descriptors: list[int]


def given(tier: Tier, head: Head, data: bytes) -> Given:
    """Return the files of a request; the caller closes the descriptors."""
    contents: dict[str, bytes] = {}
    start = 0
    for name, size in zip(head["arguments"], head["sizes"], strict=True):
        contents[name] = data[start : start + size]
        start += size
    if tier is Tier.namespaces:
        return Given(paths=list(contents), files=contents, descriptors=[])
    descriptors = [in_memory(content) for content in contents.values()]
    paths = [f"/dev/fd/{FIRST + index}" for index in range(len(descriptors))]
    return Given(paths=paths, files={}, descriptors=descriptors)


def in_memory(content: bytes) -> int:
    """Return a descriptor of an in-memory file with this content, at its start."""
    fd = linux.memory_file("file")
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
