"""Token counts of the rollout servers, to check against the tokens that are trained on."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import stamina

from coding_model_project.errors import TrainingError
from coding_model_project.http import announced, reason

_COUNTER = "vllm:generation_tokens_total"
_TIMEOUT_S = 10.0
_ATTEMPTS = 3


def generated_tokens(addresses: Sequence[str]) -> int | None:
    """Return the number of tokens that all servers have generated, by vLLM's own counters.

    Args:
        addresses: "host:port" of each server.

    Returns:
        None if the servers do not count (another engine, or `rollout.disable_log_stats=true`).

    Raises:
        TrainingError: a server does not answer; names it.
    """
    total = None
    for address in addresses:
        url = f"http://{address}/metrics"
        try:
            with announced(None, attempts=_ATTEMPTS):
                page = _read(url)
        except httpx.HTTPError as error:
            raise TrainingError(
                f"rollout server {address} does not answer ({reason(error)}): the server, its node or "
                "the link is down; run the same command once they are up to resume"
            ) from error
        counts = [
            float(line.rpartition(" ")[2])
            for line in page.splitlines()
            if line.startswith(_COUNTER)
        ]
        if counts:
            total = (total or 0) + int(sum(counts))
    return total


@stamina.retry(on=httpx.HTTPError, attempts=_ATTEMPTS, timeout=None)
def _read(url: str) -> str:
    """Return a page; retry, since a server may be busy with generation.

    Raises:
        httpx.HTTPError: it cannot be read.
    """
    return httpx.get(url, timeout=_TIMEOUT_S, trust_env=False).raise_for_status().text
