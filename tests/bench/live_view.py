"""Time and memory of the live view on 100,000 samples: `python -m tests.bench.live_view` prints JSON.

Seconds to index them, to draw the overview and to answer the slowest filters; memory of that process.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from coding_model_project.reports.live import LiveRuns
from coding_model_project.reports.live_samples import Filters
from coding_model_project.runs.folder import RunFolder

N_STEPS = 390
_COMPLETION_CHARACTERS = 1_500


def measure(folder: Path) -> dict[str, float]:
    """Open a run as `report --serve` does, and send its page's requests."""
    before_mb = _peak_mb()
    start = time.perf_counter()
    live = LiveRuns([RunFolder(folder)])
    indexed = time.perf_counter()
    live.overview()
    drawn = time.perf_counter()
    hard = Filters(error="timeout", rate_from=0.2, rate_to=0.5, text="9")
    for answer in (live.index.steps, live.index.groups, live.index.samples):
        answer(hard)
    asked = time.perf_counter()
    return {
        "samples": live.index.n,
        "file_mb": round((folder / "rollouts.jsonl").stat().st_size / 1e6),
        "index_s": round(indexed - start, 2),
        "overview_s": round(drawn - indexed, 2),
        "three_filtered_pages_s": round(asked - drawn, 2),
        "peak_mb": round(_peak_mb()),
        "of_which_imports_mb": round(before_mb),
    }


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Make a run, and measure in a process that never had its samples in memory."""
    from tests.synthetic_runs import training, training_metrics, write_run

    with tempfile.TemporaryDirectory() as folder:
        padding = _COMPLETION_CHARACTERS
        rows = training(n_steps=N_STEPS, n_problems=32, n_samples=8, pool=400, padding=padding)
        run = write_run(Path(folder) / "run", rollouts=rows, metrics=training_metrics(rows))
        subprocess.run([sys.executable, "-m", "tests.bench.live_view", run], check=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(measure(Path(sys.argv[1]))))
    else:
        main()
