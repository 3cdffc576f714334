"""The metrics of /metrics, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

from prometheus_client import CollectorRegistry, Counter, Histogram, Info
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from coding_model_project import __version__
from coding_model_project.control_groups import oom_kills
from coding_model_project.sandbox.base import Sandbox
from coding_model_project.server.admission import Admission
from coding_model_project.server.requests import RunStatus

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Measures:
    """Metrics of one server."""

    CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, admission: Admission, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._registry = CollectorRegistry()
        self._programs = Counter(
            "sandbox_programs",
            "Programs by the status of their answer",
            ["status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "sandbox_run_seconds",
            "Seconds of requests that run programs, without waiting for a place",
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._registry.register(_Places(admission))
        self._info = Info(
            "sandbox", "The sandbox and this server's version", registry=self._registry
        )

    def timed(self) -> AbstractContextManager[object]:
        """Return a context that times a run."""
        return self._seconds.time()

    def count(self, status: RunStatus) -> None:
        """Count a program."""
        self._programs.labels(status).inc()

    def text(self) -> str:
        self._info.info({"identity": self._sandbox.identity, "version": __version__})
        return generate_latest(self._registry).decode()


class _Places(Collector):
    """The state of an admission, and the kernel's count of processes killed for lack of memory."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission

    def collect(self) -> Iterator[Metric]:
        now = self._admission
        for name, meaning, value in (
            ("places", "Requests whose programs can run at once", now.places),
            ("running", "Requests whose programs run", now.running),
            ("waiting", "Requests that wait for a place", now.waiting),
            ("leaving", "1 while the server shuts down", now.leaving),
        ):
            yield GaugeMetricFamily(f"sandbox_{name}", meaning, value=value)
        for name, meaning, value in (
            ("refused", "Requests answered 429, or 503 during shutdown", now.refused),
            ("waited_seconds", "Seconds that requests have waited for a place", now.waited_s),
            ("oom_kills", "Processes of this machine killed for lack of memory", oom_kills()),
        ):
            yield CounterMetricFamily(f"sandbox_{name}", meaning, value=value)
