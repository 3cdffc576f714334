"""What the rollout servers themselves say they generated: the check on what is trained on."""

from __future__ import annotations

from collections.abc import Sequence

import httpx

_COUNTER = "vllm:generation_tokens_total"
_TIMEOUT_S = 10.0


def generated_tokens(addresses: Sequence[str]) -> int | None:
    """Tokens generated so far by all servers, by vLLM's own counters.

    Args:
        addresses: "host:port" of each server.

    Returns:
        None where the servers do not count (another engine, or `rollout.disable_log_stats=true`).

    Raises:
        httpx.HTTPError: a server does not answer.
    """
    total = None
    for address in addresses:
        page = httpx.get(f"http://{address}/metrics", timeout=_TIMEOUT_S, trust_env=False).text
        counts = [
            float(line.rpartition(" ")[2])
            for line in page.splitlines()
            if line.startswith(_COUNTER)
        ]
        if counts:
            total = (total or 0) + int(sum(counts))
    return total
