"""Configuration keys: fields with a default, a meaning and a unit."""

from __future__ import annotations

import copy
from dataclasses import field
from typing import Any


def key(default: Any, meaning: str, *, unit: str = "") -> Any:
    """Return a dataclass field for a configuration key.

    Args:
        default: its default; a list or dict is copied for each configuration.
        meaning: its description in the reference, in Markdown.
        unit: the unit of its value, if that is a quantity.
    """
    metadata = {"meaning": meaning, "unit": unit}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)
