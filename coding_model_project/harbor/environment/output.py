"""Bounded buffers of command output, which keep its beginning and its end."""

from __future__ import annotations


class Kept:
    """A buffer that keeps the beginning and the end of a command's output, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._half = max(1, max_bytes // 2)
        self._head, self._tail = bytearray(), bytearray()
        self._lost = 0

    def add(self, chunk: bytes) -> None:
        room = self._half - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        if len(self._tail) > 2 * self._half:
            self._trim()

    def _trim(self) -> None:
        excess = len(self._tail) - self._half
        if excess > 0:
            self._lost += excess
            del self._tail[:excess]

    def take(self) -> tuple[bytes, int]:
        """Return the kept bytes, and the number of dropped bytes between its halves."""
        self._trim()
        return bytes(self._head + self._tail), self._lost

    def forget(self) -> None:
        """Drop the kept bytes."""
        self._head, self._tail = bytearray(), bytearray()


def bounded(text: str | None, max_bytes: int) -> str:
    """Return a text's beginning and end, as `Kept` keeps them."""
    kept = Kept(max_bytes)
    kept.add((text or "").encode("utf-8", "surrogateescape"))
    return shown(*kept.take(), max_bytes)


def error_line(error: Exception) -> str:
    """Return another program's exception on one line of at most 400 characters."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


def shown(kept: bytes, lost: int, max_bytes: int) -> str:
    """Return kept bytes as text, with a note in the middle on how much was dropped there."""
    if not lost:
        return kept.decode("utf-8", "replace")
    half = max(1, max_bytes // 2)
    head, tail = kept[:half], kept[half:]
    note = f"\n[… {lost} bytes left out …]\n"
    return head.decode("utf-8", "replace") + note + tail.decode("utf-8", "replace")
