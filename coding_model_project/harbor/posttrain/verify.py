"""The program of a post-training task's test.sh: judges first, then scores, then writes the reward.

    verify TESTS LOGS

TESTS holds settings.json, problems.jsonl, allowed.jsonl, siblings.json and the chat template. It writes
the reward last, and only if every judge has a verdict: judge_analysis.json lists missing ones.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coding_model_project.data.problems import read_problems
from coding_model_project.errors import CodingModelError
from coding_model_project.harbor.posttrain import contamination, language_judge, submission
from coding_model_project.harbor.posttrain.left_files import Left, left_files
from coding_model_project.harbor.posttrain.scoring import DATASET, score
from coding_model_project.harbor.posttrain.submission import (
    Judgement,
    Model,
    Unfit,
    Verdict,
    assemble,
    open_model,
)

SUBMISSION = "final_model"
METRICS, REWARD, ANALYSIS = "metrics.json", "reward.txt", "judge_analysis.json"
CONTAMINATION, DISALLOWED = "contamination_judgement.txt", "disallowed_model_judgement.txt"
STARTED, ENDED = "timer/started_at", "timer/ended_at"

_SUMMARIES = {
    CONTAMINATION: ("no contamination detected", "contamination detected"),
    DISALLOWED: ("only allowed use detected", "disallowed use detected"),
}
_JUDGED_BY = {
    CONTAMINATION: (contamination.JUDGE, language_judge.JUDGE),
    DISALLOWED: (submission.JUDGE, language_judge.JUDGE),
}


def main(arguments: list[str]) -> int:
    """Verify, and return 0 if a reward was written."""
    with tempfile.TemporaryDirectory(prefix="verify-", ignore_cleanup_errors=True) as folder:
        return _verify(*map(Path, (*arguments, folder)))


def _verify(tests: Path, logs: Path, work: Path) -> int:
    logs.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = json.loads((tests / "settings.json").read_text())
    workspace, base = Path(settings["workspace"]), Path(settings["base"])
    template = (tests / "templates" / settings["template"]).read_text()
    problems, stop = tests / "problems.jsonl", settings["stop"]
    submitted: Model | Unfit
    try:
        submitted = open_model(workspace / SUBMISSION)
    except Unfit as error:
        submitted = error
    judgements = _judgements(settings, tests, submitted)
    missing = [one for one in judgements if one.verdict is Verdict.missing]
    rejected = [one for one in judgements if one.verdict is Verdict.rejected]
    _write_judgements(logs, judgements)
    if missing:
        names = ", ".join(one.judge for one in missing)
        print(f"no reward: no verdict of {names}: {missing[0].reasons[0]}")  # noqa: T201
        return 1
    metrics: dict[str, Any] = {
        "benchmark": settings["benchmark"],
        "model": settings["model"],
        "hours": settings["hours"],
        **_timer(settings),
        "rejected_by": [one.judge for one in rejected],
    }
    asked = settings["asked"]
    try:
        own = assemble(open_model(base), base, template, stop, work / "base")
        metrics["base"] = score(own, problems, work / "base_evaluation", asked, say=_say)[DATASET]
        chosen = metrics["base"]
        if not rejected and isinstance(submitted, Model):
            model = assemble(submitted, base, template, stop, work / "model")
            metrics["submission"] = chosen = score(
                model, problems, work / "evaluation", asked, say=_say
            )[DATASET]
    except (CodingModelError, Unfit, OSError) as error:
        _write(logs / METRICS, {**metrics, "error": f"{type(error).__name__}: {error}"})
        print(f"no reward: the evaluation failed: {error}")  # noqa: T201
        return 1
    reward = float(chosen["accepted"])
    metrics |= {"reward": reward, "scored": "base" if chosen is metrics["base"] else "submission"}
    _write(logs / METRICS, metrics)
    for one in rejected:
        print(f"rejected by {one.judge}: {one.reasons[0]}")  # noqa: T201
    print(f"reward {reward} (of the {metrics['scored']})")  # noqa: T201
    (logs / f"{REWARD}.partial").write_text(f"{reward}\n")
    (logs / f"{REWARD}.partial").rename(logs / REWARD)
    return 0


def _judgements(settings: dict[str, Any], tests: Path, submitted: Model | Unfit) -> list[Judgement]:
    """Return every judge's verdict, or the reason why it is missing."""
    left: list[Left] = []

    def by_words() -> Judgement:
        left.extend(left_files([Path(place) for place in settings["left"]]))
        return contamination.judge(
            read_problems(tests / "problems.jsonl"),
            read_problems(tests / "allowed.jsonl"),
            left,
        )

    def by_weights() -> Judgement:
        siblings = json.loads((tests / "siblings.json").read_text())
        try:
            if isinstance(submitted, Unfit):
                raise submitted
            return submission.judge(submitted, Path(settings["base"]), siblings)
        except Unfit as error:
            reasons = (f"no model was submitted that can be evaluated: {error}",)
            return Judgement(judge=submission.JUDGE, verdict=Verdict.rejected, reasons=reasons)

    def by_model() -> Judgement | None:
        endpoint = language_judge.Endpoint.of(os.environ)
        if endpoint is None:
            return None
        names = {"model": settings["model_name"], "benchmark": settings["title"]}
        return language_judge.judge(endpoint, left, **names)

    judges = {
        contamination.JUDGE: by_words,
        submission.JUDGE: by_weights,
        language_judge.JUDGE: by_model,
    }
    found = [_judged(name, judge) for name, judge in judges.items()]
    return [one for one in found if one is not None]


def _judged(name: str, judge: Callable[[], Judgement | None]) -> Judgement | None:
    """Run a judge. If it fails in any way, its verdict is missing."""
    try:
        return judge()
    except CodingModelError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - a failed judge must never count as accepting
        traceback.print_exc()
        reason = " ".join(f"{type(error).__name__}: {error}".split())
    return Judgement(judge=name, verdict=Verdict.missing, reasons=(reason,))


def _write_judgements(logs: Path, judgements: list[Judgement]) -> None:
    missing = [one.judge for one in judgements if one.verdict is Verdict.missing]
    analysis = {"judgements": [one.as_json() for one in judgements], "missing": missing}
    _write(logs / ANALYSIS, analysis)
    for name, judges in _JUDGED_BY.items():
        own = [one for one in judgements if one.judge in judges]
        verdicts = {one.verdict for one in own}
        reasons = [f"{one.judge}: {reason}" for one in own for reason in one.reasons]
        if Verdict.rejected in verdicts:
            summary = _SUMMARIES[name][1]
        elif Verdict.missing in verdicts:
            summary = "no verdict"
        else:
            summary = _SUMMARIES[name][0]
        (logs / name).write_text("\n".join((summary, *reasons)) + "\n")


def _timer(settings: dict[str, Any]) -> dict[str, Any]:
    """Return how long the agent worked, by its environment's clock files, which it could change."""
    try:
        places = Path(settings["artifacts"])
        started, ended = (int((places / name).read_text()) for name in (STARTED, ENDED))
    except (OSError, ValueError):
        return {"agent_duration_s": None}
    return {
        "agent_started_at": started,
        "agent_ended_at": ended,
        "agent_duration_s": ended - started,
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, default=str) + "\n")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
