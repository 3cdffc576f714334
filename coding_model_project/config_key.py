"""Keys of the configuration: fields with a default, a meaning and a unit."""

from __future__ import annotations

import copy
from dataclasses import field
from typing import Any


def key(default: Any, meaning: str, *, unit: str = "") -> Any:
    """A key of the configuration.

    Args:
        default: a list or dict is copied for each configuration.
        meaning: for the reference, in Markdown.
        unit: of its value, if that is a quantity.
    """
    metadata = {"meaning": meaning, "unit": unit}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)
