"""What a command prints, kept up to a bound: its beginning and its end."""

from __future__ import annotations


class Kept:
    """The beginning and the end of what a command prints, up to a bound."""

    def __init__(self, most: int) -> None:
        self._half = max(1, most // 2)
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
        """What was kept, and how many bytes of its middle were not."""
        self._trim()
        return bytes(self._head + self._tail), self._lost

    def forget(self) -> None:
        """Keep nothing."""
        self._head, self._tail = bytearray(), bytearray()


def shown(kept: bytes, lost: int, most: int) -> str:
    """What was kept as text, which says how much of its middle is left out."""
    if not lost:
        return kept.decode("utf-8", "replace")
    half = max(1, most // 2)
    head, tail = kept[:half], kept[half:]
    said = f"\n[… {lost} bytes left out …]\n"
    return head.decode("utf-8", "replace") + said + tail.decode("utf-8", "replace")
