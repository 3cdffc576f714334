"""Plain data: the only values that may leave a sandbox.

It is separate from `types` and has no dataclasses: importing them takes longer than a test, and drivers
on other servers import this module for each request (`sandbox.carried`).
"""

from __future__ import annotations

Plain = (
    None
    | bool
    | int
    | float
    | complex
    | str
    | bytes
    | list["Plain"]
    | tuple["Plain", ...]
    | dict["Plain", "Plain"]
    | set["Plain"]
    | frozenset["Plain"]
)
"""Exact built-in types, the only ones that may leave a sandbox. Any other value arrives as `Opaque`."""


STDERR_TAIL = 2000
"""Bytes of the end of standard error that a sandbox keeps."""


class Opaque:
    """A stand-in for a value that is not plain data, with its type's name. Equals no expected value."""

    __slots__ = ("type_name",)

    def __init__(self, type_name: str) -> None:
        self.type_name = type_name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and self.type_name == other.type_name

    def __hash__(self) -> int:
        return hash(self.type_name)

    def __repr__(self) -> str:
        return f"Opaque({self.type_name!r})"
