"""The bound on ungradable samples, and the error that ends a run above it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coding_model_project.errors import SandboxError
from coding_model_project.harbor.harbor_config import NotIsolatedError
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.ungradable import Ungradable, last_reason, read_attempt

Belongs = Callable[[Ungradable], bool]


class Outages:
    """The ungradable samples of a run's last attempt: resumed, it takes some steps again."""

    def __init__(self, run_dir: Path, allowed: float) -> None:
        """
        Args:
            allowed: `coding.sandbox.max_failure_rate`.
        """
        self._run_dir, self._attempt = run_dir, RunFolder(run_dir).last_number
        self._allowed = allowed

    def not_isolated(self, belongs: Belongs) -> int:
        """Return the number of samples that `coding.harbor.integrity` dropped, which are no outage."""
        rows = filter(belongs, read_attempt(self._run_dir, self._attempt))
        return len({row.sample for row in rows if row.error == NotIsolatedError.__name__})

    def lost(self, belongs: Belongs) -> list[Ungradable]:
        """Return the last row of each sample that could not be judged."""
        rows = filter(belongs, read_attempt(self._run_dir, self._attempt))
        return list({row.sample: row for row in rows}.values())

    def stop(self, infra_rate: float, whose: str) -> None:
        """End the run if more samples than allowed could not be judged.

        Raises:
            SandboxError: too many samples are ungradable; has the last reason.
        """
        if infra_rate > self._allowed:
            raise SandboxError(
                f"{infra_rate:.0%} of {whose} samples could not be judged, more than "
                f"coding.sandbox.max_failure_rate={self._allowed}: stopped instead of continuing with "
                f"the rest{self.why()}"
            )

    def why(self) -> str:
        """Return the end of a message with the reason why samples were lost."""
        reason = last_reason(self._run_dir, self._attempt)
        if not reason:  # no sample reached the judge
            return "; see the rollout server's errors above"
        return f"; last reason (all are in ungradable.jsonl): {reason}"
