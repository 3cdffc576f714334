"""`coding.sandbox`: where programs run."""

# ruff: noqa: RUF009 - key() makes a dataclass field, as field() does.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coding_model_project.config_key import key
from coding_model_project.isolation.confine import Tier


@dataclass
class SandboxConfig:
    name: str = key(
        "embedded",
        "`embedded`, `fusion` for SandboxFusion servers (`sandbox=fusion`), or "
        "`package.module:Class` for a Sandbox of your own.",
    )
    workers: int | None = key(
        None,
        "Programs judged at once, per node, by `embedded`. null: one per CPU core.",
        unit="programs",
    )
    min_tier: Tier = key(
        Tier.seccomp,
        "Refuse to start `embedded` below this isolation; strongest last. Does not apply to `fusion`, "
        "which confines programs as strongly as its servers allow and says how in each verdict.",
    )
    python: str | None = key(
        None,
        "Interpreter that `embedded` runs programs in, 3.11 or later: "
        "`coding.sandbox.python=/opt/python3.12/bin/python3`. null: the one this runs in.",
    )
    preload: list[str] = key(
        [],
        "Modules that `embedded` imports once, and programs then at no cost: "
        "`coding.sandbox.preload=[numpy]`. Verdicts name them.",
    )
    share_processes: bool = key(
        False,
        "Have one process of `embedded` answer several tests of a program whose source shows that it "
        "keeps nothing between them: three times as fast with 20 tests. `docs/grading.md` says what "
        "holds, and why it is off.",
    )
    urls: list[str] = key(
        [],
        "SandboxFusion servers for `fusion`, all alike: `coding.sandbox.urls=[http://host:8080]`; "
        "`dns+http://name:8080` is every address of that name, `file:/path` every line of that file. "
        "A token they ask for is read from the environment variable `CODING_SANDBOX_TOKEN`.",
    )
    max_concurrency: int = key(
        32,
        "Most requests to those servers at once, from each node (there is one judge per node). A "
        "request holds several programs, and no more are sent than the servers have CPU cores.",
        unit="requests",
    )
    timeout_s: float = key(
        30.0,
        "How much longer than the programs in it may take a request may take, queueing included.",
        unit="s",
    )
    retry_s: float = key(
        180.0,
        "How long a request that a server failed to answer is tried again before its sample counts "
        "as ungradable. Once nothing has worked for so long, further ones are tried once.",
        unit="s",
    )
    refresh_s: float = key(
        5.0,
        "How often names and files in `urls` are read again, for servers that come and go.",
        unit="s",
    )
    max_failure_rate: float = key(
        0.5,
        "A larger share of ungradable samples in a training step stops the run; in the last 200 "
        "programs it stops the judge, and so the run.",
        unit="share",
    )
    kwargs: dict[str, Any] = key(
        {}, "Keyword arguments for a Sandbox of your own: `+coding.sandbox.kwargs.url=http://...`."
    )
