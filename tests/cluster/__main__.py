"""Fault injection into real trainings on several nodes: `make cluster`.

    python -m tests.cluster [FAULT...]

Two nodes in namespaces of this machine train with GRPO and the CPU profile. The last line is JSON:
{"nodes", "faults": {name: whether the run reacted as expected}, "ok"}. Exit codes: 0; 1 if a fault
failed; 2 if this machine cannot run such nodes.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping

import psutil

from tests.cluster.rig import Rig, why_not
from tests.cluster.run_faults import Faults
from tests.cluster.start_faults import AT_THE_START


def main() -> int:
    if reason := why_not():
        print(f"error: {reason}", file=sys.stderr)
        return 2
    chosen = sys.argv[1:]
    results: dict[str, bool] = {}
    with Rig(nodes=2) as rig:
        at_start = {name: _of(fault, rig) for name, fault in AT_THE_START.items()}
        faults = at_start | dict(Faults(rig).in_order)
        if unknown := sorted(set(chosen) - set(faults)):
            print(
                f"error: unknown fault {', '.join(unknown)}; choose from {', '.join(faults)}",
                file=sys.stderr,
            )
            return 2
        for name in chosen or faults:
            results[name] = _done(name, faults)
        nodes = len(rig.nodes)
    ok = all(results.values())
    print(json.dumps({"nodes": nodes, "faults": results, "ok": ok}))
    return 0 if ok else 1


def _of(fault: Callable[[Rig], bool], rig: Rig) -> Callable[[], bool]:
    return lambda: fault(rig)


def _done(name: str, faults: Mapping[str, Callable[[], bool]]) -> bool:
    print(f"{name}", flush=True)
    began = time.monotonic()
    try:
        ok = faults[name]()
    except (RuntimeError, TimeoutError, OSError, IndexError, psutil.Error):
        traceback.print_exc()
        ok = False
    print(f"  {'passed' if ok else 'FAILED'}, {time.monotonic() - began:.0f} s", flush=True)
    return ok


if __name__ == "__main__":
    raise SystemExit(main())
