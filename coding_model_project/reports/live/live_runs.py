"""Followed runs: cards and charts as on the static page, and the index of their samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from coding_model_project.reports.header import run_names
from coding_model_project.reports.live.sample_index import SampleIndex
from coding_model_project.reports.page_data import RunData
from coding_model_project.reports.run_charts import run_charts
from coding_model_project.reports.run_page import run_data
from coding_model_project.reports.sample_columns import sample_fields
from coding_model_project.runs.folder import RunFolder


class LiveRuns:
    """Finished or running runs, which are read again only if files change.

    Args:
        runs: at least one run; duplicates are removed.

    Raises:
        ConfigError: a folder is not a run's.
        DataError: a line of the samples is damaged.
    """

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        self._runs = list({run.path.resolve(): run for run in runs}.values())
        self.names = run_names(self._runs)
        for run in self._runs:
            run.provenance()  # raises for other folders before any run is read
        self.index = SampleIndex([run.path for run in self._runs])
        self.refresh()

    def refresh(self) -> None:
        """Read data written since the last call.

        Raises:
            DataError: a line of the samples is damaged.
        """
        self.index.refresh()

    @property
    def version(self) -> str:
        """Text that changes whenever the overview changes."""
        files = [file for run in self._runs for file in (run.metrics, run.evaluations)]
        sizes = [file.stat().st_size if file.exists() else 0 for file in files]
        return repr((self.index.changes, sizes, [str(run.state) for run in self._runs]))

    def runs(self) -> list[RunData]:
        """Return the data above the samples, by run."""
        runs = zip(self._runs, self.names, self.index.tallies, strict=True)
        return [run_data(run, name, tally) for run, name, tally in runs]

    def overview(self) -> dict[str, Any]:
        """Return cards, charts, and the choices of the filters."""
        runs = self.runs()
        rows = run_charts(runs, ()).rows
        return {
            "version": self.version,
            "runs": [{"name": r.name, "state": r.state, "facts": r.facts} for r in runs],
            "charts": [{"id": one.id, **one.plain()} for row in rows for one in row],
            "choices": {name: self.index.values(name) for name in ("split", "source", "error")},
        }

    def sample(
        self, run: int, split: str, step: int, problem: str, sample: str
    ) -> dict[str, Any] | None:
        """Read a sample in full with its recorded verdict, or return None if it does not exist."""
        row = self.index.sample(run, split, step, problem, sample)
        if row is None:
            return None
        return sample_fields(row) | {"run": self.names[run], "recorded": asdict(row)}
