"""Sampling of training problems by the expected value of a group of samples.

With a pass rate p, the rewards of a group have the variance p(1 - p), from which group-relative
advantages learn. A problem that always or never passes teaches nothing (Bae et al. 2025, arXiv
2504.03380, sample by the same measure). The rate is estimated as a Beta distribution of the samples seen,
so a problem's worth is the mean of p(1 - p) under it: αβ / ((α + β)(α + β + 1)). An untried problem is
worth 1/6, against a maximum of 1/4, so all problems are eventually tried.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coding_model_project.errors import ConfigError

MEMORY = 0.9
"""Decay of the weight of earlier samples with each new group, since the policy changes."""
MOST_PRIOR = 8.0
"""Maximum number of samples that a measured rate counts for, since another policy made them."""


class DrawByWorth:
    """A sampler of rows by the worth of their problems, deterministic for a seed and samples.

    Args:
        ids: the problem of each row.
        seed: the seed of the draws.
        apart: the minimum number of other rows between two draws of a row; at most all others.
        rates: measured rates by problem: the numbers of passed and of judged samples.
    """

    def __init__(
        self,
        ids: Sequence[str],
        *,
        seed: int,
        apart: int,
        rates: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self._names = list(dict.fromkeys(ids))
        self._number = {name: number for number, name in enumerate(self._names)}
        self._rows = np.array([self._number[name] for name in ids])
        self._passed = np.zeros(len(self._names))
        self._failed = np.zeros(len(self._names))
        self._rng = np.random.default_rng(seed)
        self._recent: deque[int] = deque(maxlen=min(apart, len(ids) - 1))
        for name, (passed, judged) in (rates or {}).items():
            if name in self._number and judged:
                share = min(1.0, MOST_PRIOR / judged)
                self._passed[self._number[name]] = passed * share
                self._failed[self._number[name]] = (judged - passed) * share

    def draw(self) -> int:
        """Draw a row's index."""
        worth = self.worth()[self._rows]
        worth[list(self._recent)] = 0.0
        row = int(self._rng.choice(len(worth), p=worth / worth.sum()))
        self._recent.append(row)
        return row

    def worth(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return each problem's worth, in (0, 1/4)."""
        alpha, beta = self._passed + 1, self._failed + 1
        total = alpha + beta
        return alpha * beta / (total * (total + 1))

    def seen(self, problem: str, passed: int, judged: int) -> None:
        """Record the samples of a group."""
        number = self._number[problem]
        self._passed[number] = MEMORY * self._passed[number] + passed
        self._failed[number] = MEMORY * self._failed[number] + judged - passed

    def state_dict(self) -> dict[str, Any]:
        """Return the state that later draws depend on."""
        return {
            "problems": self._names,
            "passed": self._passed.tolist(),
            "failed": self._failed.tolist(),
            "recent": list(self._recent),
            "rng": self._rng.bit_generator.state,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state.

        Raises:
            ConfigError: the state belongs to other training rows.
        """
        if state["problems"] != self._names:
            raise ConfigError(
                "data.train_files: the checkpoint's online sampler has other problems "
                f"({len(state['problems'])}, not these {len(self._names)}): resume with the original "
                "training files, or start a new run in another coding.run_dir"
            )
        self._passed, self._failed = np.array(state["passed"]), np.array(state["failed"])
        self._recent = deque(state["recent"], maxlen=self._recent.maxlen)
        self._rng.bit_generator.state = state["rng"]
