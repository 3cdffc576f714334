"""Checkpoints that run no code when they are loaded.

verl's and TransferQueue's files are pickles, and verl loads them as such. A pickle is a program, and a
checkpoint may be another's.
"""

from __future__ import annotations

import importlib
import io
import os
import pickle
import re
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from coding_model_project.errors import CheckpointError


def load_weights_only() -> None:
    """Make `torch.load` run no code of a file. Bytes in memory come from this run's own processes.

    It then raises CheckpointError for a file that holds anything but tensors and plain values.
    """
    torch.serialization.add_safe_globals(
        [np.ndarray, np.dtype, _of_numpy("_reconstruct"), _of_numpy("scalar"), *_dtypes()]
    )
    load: Any = torch.load

    def load_safely(file: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(file, str | os.PathLike):
            return load(file, *args, **options)
        try:
            return load(file, *args, **options | {"weights_only": True})
        except pickle.UnpicklingError as error:
            raise CheckpointError(_refusal(file, error)) from error

    torch.load = load_safely


def load_queue_safely() -> None:
    """Make TransferQueue write its checkpoints by torch, and load no code from them."""
    from transfer_queue import controller
    from transfer_queue.storage import simple_storage

    torch.serialization.add_safe_globals(
        [controller.DataPartitionStatus, controller.FieldMeta, defaultdict, set, list, dict]
    )
    for module in (controller, simple_storage):
        module.pickle = SimpleNamespace(  # type: ignore[reportAttributeAccessIssue]
            HIGHEST_PROTOCOL=2, dump=_dump, dumps=_dumps, load=_load, loads=_loads
        )


def _refusal(file: Any, error: Exception) -> str:
    """Return one line with the reason why a file is not loaded."""
    found = re.search(r"(Unsupported|GLOBAL)[^\n]*", str(error))
    return (
        f"{os.fspath(file)}: holds more than tensors and plain values, and loading it could run code "
        f"({found[0] if found else 'not a checkpoint'}); use a checkpoint that this package has written"
    )


def _dump(state: Any, file: Any, protocol: int) -> None:
    torch.save(state, file, pickle_protocol=protocol)


def _dumps(state: Any, protocol: int) -> bytes:
    buffer = io.BytesIO()
    _dump(state, buffer, protocol)
    return buffer.getvalue()


def _load(file: Any) -> Any:
    return torch.load(file, weights_only=True)


def _loads(content: bytes) -> Any:
    return _load(io.BytesIO(content))


def _of_numpy(name: str) -> Any:
    return getattr(importlib.import_module("numpy._core.multiarray"), name)


def _dtypes() -> list[type]:
    return [value for value in vars(np.dtypes).values() if isinstance(value, type)]
