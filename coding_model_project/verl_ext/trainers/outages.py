"""The bound on samples that could not be judged, and the reason that ends a run beyond it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from coding_model_project.errors import SandboxError
from coding_model_project.harbor.integrity import NotIsolatedError
from coding_model_project.runs.ungradable import Ungradable, last_reason, read_current

Belongs = Callable[[Ungradable], bool]


class Outages:
    """The samples of a run that no verdict could be given for."""

    def __init__(self, run_dir: Path, allowed: float) -> None:
        """
        Args:
            allowed: `coding.sandbox.max_failure_rate`.
        """
        self._run_dir = run_dir
        self._allowed = allowed

    def not_isolated(self, belongs: Belongs) -> int:
        """Count the samples that `coding.harbor.integrity` left out: no outage."""
        rows = filter(belongs, read_current(self._run_dir))
        return len({row.sample for row in rows if row.error == NotIsolatedError.__name__})

    def lost_problems(self, belongs: Belongs) -> list[str]:
        """Return the problem of each sample that could not be judged."""
        rows = filter(belongs, read_current(self._run_dir))
        return list({row.sample: row.problem for row in rows}.values())

    def stop(self, infra_rate: float, whose: str) -> None:
        """End the run if more samples than allowed could not be judged.

        Raises:
            SandboxError: with the last reason.
        """
        if infra_rate > self._allowed:
            raise SandboxError(
                f"{infra_rate:.0%} of {whose} samples could not be judged, more than "
                f"coding.sandbox.max_failure_rate={self._allowed}: stopped rather than go on with what "
                f"is left{self.why()}"
            )

    def why(self) -> str:
        """Return the end of a message that says why samples were lost."""
        reason = last_reason(self._run_dir)
        if not reason:  # nothing came as far as the judge
            return "; the rollout server's errors above say why"
        return f"; the last reason, all are in ungradable.jsonl: {reason}"
