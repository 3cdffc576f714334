"""Checkpoints as verl leaves them, and an object store that can fail."""

import threading

from fsspec.implementations.memory import MemoryFileSystem

from coding_model_project.runs.checkpoints import TRACKER, write_manifest

WEIGHTS = "actor/model_world_size_1_rank_0.pt"
FILES = {WEIGHTS: b"w" * 4000, "actor/huggingface/config.json": b"{}", "data.pt": b""}


class Remote(MemoryFileSystem):
    """An object store that can fail: from the `fails_from`-th write on, and can be held up."""

    protocol = "remote"
    store = {}
    pseudo_dirs = [""]
    writes = 0
    fails_from = None
    passes = False
    error = OSError("connection reset")
    gate = None
    reached = threading.Event()

    @classmethod
    def _strip_protocol(cls, path):
        return MemoryFileSystem._strip_protocol(path.removeprefix("remote://"))

    def put_file(self, lpath, rpath, **kwargs):
        cls = type(self)
        cls.writes += 1
        cls.reached.set()
        if cls.gate is not None:
            cls.gate.wait(60)
        if cls.fails_from is not None and cls.writes >= cls.fails_from:
            if cls.passes:
                cls.fails_from = None
            raise cls.error
        return super().put_file(lpath, rpath, **kwargs)


class Said(list):
    def __call__(self, line):
        assert "\n" not in line
        self.append(line)


def save(checkpoints, step, *, complete=True, files=FILES):
    """A checkpoint as verl leaves it, and its tracker."""
    folder = checkpoints / f"global_step_{step}"
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (checkpoints / TRACKER).write_text(str(step))
    if complete:
        write_manifest(folder)
    return folder


def tracked(checkpoints):
    return (checkpoints / TRACKER).read_text()


def truncate(folder):
    (folder / WEIGHTS).write_bytes(b"w" * 10)
