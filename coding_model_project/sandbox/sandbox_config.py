"""`coding.sandbox`: the sandbox that runs programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coding_model_project.config_key import Option, key
from coding_model_project.isolation.confine import Tier

RETRY_S = 180.0
"""Default time, in seconds, for which a request that servers fail to answer is retried."""


@dataclass
class SandboxConfig:
    name: str = key(
        "embedded",
        "Sandbox that runs programs: `embedded`, `fusion` for SandboxFusion servers "
        "(`sandbox=fusion`), or `package.module:Class` for your own.",
    )
    workers: int | None = key(
        None,
        "Programs that `embedded` judges concurrently on each node. null: one per CPU core, within the "
        "container's quota.",
        unit="programs",
        option=Option("Run N programs at once. Default: one per CPU core.", min=1),
    )
    min_tier: Tier = key(
        Tier.seccomp,
        "Refuse to start `embedded` with weaker isolation than this tier (strongest last). Does not "
        "apply to `fusion`, which confines programs as strongly as its servers allow and records the "
        "tier in each verdict.",
        option=Option("Refuse isolation weaker than this tier."),
    )
    python: str | None = key(
        None,
        "Python interpreter in which `embedded` runs programs, 3.11 or later: "
        "`coding.sandbox.python=/opt/python3.12/bin/python3`. null: this process's interpreter.",
        option=Option("Run programs in this CPython. Default: the current one.", metavar="PATH"),
    )
    preload: list[str] = key(
        [],
        "Modules that `embedded` imports once, so that programs import them at no cost: "
        "`coding.sandbox.preload=[numpy]`. Verdicts name them.",
        option=Option("Import this module once for all programs; repeatable.", metavar="MODULE"),
    )
    urls: list[str] = key(
        [],
        "Identical SandboxFusion servers for `fusion`: `coding.sandbox.urls=[http://host:8080]`; "
        "`dns+http://name:8080` is every address of that name, `file:/path` every line of that file. "
        "With `embedded`, they run the languages that this machine lacks, and no others. "
        "Their token, if any, is read from the environment variable `CODING_SANDBOX_TOKEN`.",
        option=Option("Judge on this SandboxFusion server; repeatable.", "--sandbox-url"),
    )
    max_concurrency: int = key(
        32,
        "Maximum concurrent requests to those servers from each node, which has one judge. A request "
        "holds several programs, and at most as many are sent as the servers run at once.",
        unit="requests",
    )
    timeout_s: float = key(
        30.0,
        "Time that a request may take beyond the limits of its programs, queueing included.",
        unit="s",
    )
    retry_s: float = key(
        RETRY_S,
        "Time for which a failed request is retried before its sample counts as ungradable. After an "
        "outage of this length, further requests are tried only once.",
        unit="s",
    )
    refresh_s: float = key(
        5.0,
        "Interval at which names and files in `urls` are read again, for servers that come and go.",
        unit="s",
    )
    max_failure_rate: float = key(
        0.5,
        "Maximum share of ungradable samples. A larger share in a training step stops the run; in the "
        "last 200 programs it stops the judge, and so the run.",
        unit="share",
    )
    kwargs: dict[str, Any] = key(
        {}, "Keyword arguments for your own Sandbox: `+coding.sandbox.kwargs.url=http://...`."
    )
