"""An object store that can fail, a store of checkpoints in it, and what it prints."""

import threading

import fsspec
import pytest
import stamina

from coding_model_project.runs.checkpoint_store import CheckpointStore
from tests.unit.runs.checkpoint_world import Remote, Said


@pytest.fixture
def remote():
    fsspec.register_implementation("remote", Remote, clobber=True)
    Remote.store, Remote.pseudo_dirs, Remote.writes = {}, [""], 0
    Remote.fails_from = Remote.gate = None
    Remote.passes = False
    Remote.error = OSError("connection reset")
    Remote.reached = threading.Event()
    with stamina.set_testing(True, attempts=2):
        yield Remote


@pytest.fixture
def said():
    return Said()


@pytest.fixture
def store(said):
    return CheckpointStore("remote://bucket/run", keep=2, say=said)
