"""Timing traces, one file per step in Chrome's trace format (open in Perfetto)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A time span on a named track, in seconds since the epoch."""

    track: str
    name: str
    start: float
    end: float
    arguments: Mapping[str, float | str | None]


def write_trace(folder: Path, step: int, spans: Iterable[Span]) -> None:
    """Write `step_NNNNNN.json`; overlapping spans of a track get separate rows."""
    events = []
    tracks: dict[str, int] = {}
    rows: dict[str, list[float]] = {}  # per track, the time at which each row is free
    for span in sorted(spans, key=lambda span: span.start):
        free = rows.setdefault(span.track, [])
        row = next((n for n, until in enumerate(free) if until <= span.start), len(free))
        free[row : row + 1] = [span.end]
        process = tracks.setdefault(span.track, len(tracks) + 1)
        events.append(
            {
                "name": span.name,
                "ph": "X",
                "ts": span.start * 1e6,
                "dur": (span.end - span.start) * 1e6,
                "pid": process,
                "tid": row,
                "args": dict(span.arguments),
            }
        )
    names = [
        {"name": "process_name", "ph": "M", "pid": number, "args": {"name": track}}
        for track, number in tracks.items()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"step_{step:06d}.json").write_text(json.dumps({"traceEvents": names + events}))
