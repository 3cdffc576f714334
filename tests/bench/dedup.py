"""Recall and precision of the search on a set as large as CodeContests with planted copies.

    python -m tests.bench.dedup [DATA_DIR]

Copies are planted of training problems and of evaluation problems, in the kinds of `KINDS`. Those of
kinds that end in "+tests" keep their tests; the others have tests of their own, so that only words can
show them.
HumanEval and MBPP are among the evaluation sets where the data folder has them.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from coding_model_project.data.dedup.documents import Document, document
from coding_model_project.data.dedup.govern import Decision, decide
from coding_model_project.data.dedup.search import Say
from coding_model_project.data.loaders import load
from coding_model_project.data.rates import Rate
from coding_model_project.errors import ConfigError
from tests.bench import made_problems
from tests.bench.made_problems import Meaning, Rendering

N_TRAINING = 13_328
N_EVALUATION = 1_337
"""Size of CodeContests' valid and test splits plus LiveCodeBench v6."""

N_PLANTED = 100
"""Number of copies of each kind, half of them of evaluation problems."""

SIBLING_SHARE = 0.3
REAL_SETS = ("humaneval", "mbpp_reg", "mbpp_test")

Turn = Callable[[Rendering, random.Random], Rendering]
_TURNS: dict[str, Turn] = {
    "exact": lambda how, _: how,
    "signs": lambda how, _: how,
    "renamed": made_problems.renamed,
    "rearranged": made_problems.rearranged,
    "reworded 30%": partial(made_problems.reworded, share=0.3),
    "paraphrased 15%": partial(made_problems.paraphrased, share=0.15),
    "paraphrased 30%": partial(made_problems.paraphrased, share=0.3),
    "paraphrased 100%": partial(made_problems.paraphrased, share=1.0),
}
"""Paraphrases have other sentences in another order, and synonyms for a share of their words."""

KINDS = (*_TURNS, "paraphrased 30% +tests", "paraphrased 100% +tests")


@dataclass(slots=True)
class _Planted:
    """The set with what was planted: id of each copy → (kind, id of the original)."""

    documents: list[Document] = field(default_factory=list)
    copies: dict[str, tuple[str, str]] = field(default_factory=dict)


def bench(
    *,
    data_dir: Path | None = None,
    n_training: int = N_TRAINING,
    n_evaluation: int = N_EVALUATION,
    n_planted: int = N_PLANTED,
    seed: int = 0,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Make the set, search it, and compare with what was planted.

    Returns:
        Recall by kind, precision, seconds of wall and CPU time, peak memory and the machine's load.
    """
    load_before = os.getloadavg()
    planted = _plant(n_training, n_evaluation, n_planted, random.Random(seed))
    real = _real_sets(data_dir)
    started, cpu_started = time.monotonic(), time.process_time()
    decision = decide([*planted.documents, *real], say)
    seconds, cpu_s = time.monotonic() - started, time.process_time() - cpu_started
    return {
        "training_problems": n_training,
        "evaluation_problems": n_evaluation + len(real),
        "real_evaluation_sets": sorted({d.source for d in real}),
        "recall": _recall(planted, decision),
        "precision": _precision(planted, decision),
        "wall_s": round(seconds, 1),
        "cpu_s": round(cpu_s, 1),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "cores": os.cpu_count(),
        "load_before": [round(load, 1) for load in load_before],
        "load_after": [round(load, 1) for load in os.getloadavg()],
    }


def _plant(n_training: int, n_evaluation: int, n_planted: int, rng: random.Random) -> _Planted:
    planted = _Planted()
    originals = _originals(n_training - n_planted * len(KINDS), n_evaluation, rng)
    for name, split, what, how in originals:
        text = made_problems.statement(what, how)
        planted.documents.append(document(made_problems.problem(name, split, what, text)))
    training = [one for one in originals if one[1] == "train"]
    evaluation = [one for one in originals if one[1] == "test"]
    copies = []
    for kind in KINDS:
        chosen = rng.sample(training, n_planted // 2) + rng.sample(evaluation, n_planted // 2)
        for name, _, what, how in chosen:
            copy = f"codecontests/train/copy-{len(planted.copies)}"
            planted.copies[copy] = (kind, name)
            copies.append(document(_copy(copy, kind, what, how, rng)))
    planted.documents += copies  # after what they copy: of two the later one goes
    return planted


_Original = tuple[str, str, Meaning, Rendering]


def _originals(n_training: int, n_evaluation: int, rng: random.Random) -> list[_Original]:
    found: list[_Original] = []
    for number in range(n_training + n_evaluation):
        what = made_problems.meaning(rng)
        if found and rng.random() < SIBLING_SHARE:
            what = made_problems.sibling(rng.choice(found)[2], rng)
        split = "test" if number < n_evaluation else "train"
        name = f"codecontests/{split}/{number}"
        found.append((name, split, what, made_problems.rendering(rng)))
    return found


def _copy(name: str, kind: str, what: Meaning, how: Rendering, rng: random.Random):
    turn, _, tests = kind.partition(" +")
    text = made_problems.statement(what, _TURNS[turn](how, rng))
    if turn == "signs":
        text = text.upper().replace(".", " !").replace("\n\n", "  \n")
    return made_problems.problem(name, "train", what, text, tests=bool(tests))


def _real_sets(data_dir: Path | None) -> list[Document]:
    found: list[Document] = []
    for name in REAL_SETS if data_dir is not None else ():
        try:
            found += map(document, load(name, data_dir=data_dir).problems)
        except ConfigError:  # not there: the measurement says which sets it had
            continue
    return found


def _recall(planted: _Planted, decision: Decision) -> dict[str, Any]:
    """Return the share of removed copies by kind, whichever original the search names."""
    removed = {removal.id for removal in decision.removed}
    found: dict[str, Any] = {}
    for kind in KINDS:
        rate = Rate.of(i in removed for i, (known, _) in planted.copies.items() if known == kind)
        found[kind] = rate.as_json()
    found["all"] = Rate.of(i in removed for i in planted.copies).as_json()
    return found


def _precision(planted: _Planted, decision: Decision) -> dict[str, Any]:
    """Return the share of removals that name the right problem: over all, and by kind of evidence."""
    right = {r: _is_right(planted, r.id, r.other) for r in decision.removed}
    kinds: Sequence[str] = sorted({removal.kind for removal in decision.removed})
    found = {k: Rate.of(ok for r, ok in right.items() if r.kind == k).as_json() for k in kinds}
    found["all"] = Rate.of(right.values()).as_json()
    return found


def _is_right(planted: _Planted, removed: str, other: str) -> bool:
    """Return whether a removal names the original or another copy of it."""
    if removed not in planted.copies:
        return False
    original = planted.copies[removed][1]
    return original in (other, planted.copies.get(other, ("", ""))[1])


def main(data_dir: Path | None) -> None:
    """Print all rates, then a line of JSON with time and memory."""
    result = bench(data_dir=data_dir, say=lambda line: print(line, file=sys.stderr))
    for measure in ("recall", "precision"):
        for kind, rate in result.pop(measure).items():
            share = "none" if rate["share"] is None else f"{rate['share']:.1%}"
            print(f"{measure:9} {kind:24} {rate['hits']:5}/{rate['total']:<5} {share}")
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
