"""Many tasks at once: graded, or checked for whether they are fit to train on.

A task is fit if its solution passes, doing nothing fails, and no known forgery pays. Forgeries are agents
that do not do the task. Those that need a program to hide in run the task's own solution first, then
replace its files. An invalid task is reported and does not stop the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coding_model_project.concurrency import in_order
from coding_model_project.harbor.agents import Agent, NonZeroAgentExitCodeError, Oracle, Script
from coding_model_project.harbor.environment.base import Environment
from coding_model_project.harbor.format.reward_rules import Rewards
from coding_model_project.harbor.format.task import Step, Task
from coding_model_project.harbor.format.tasks import Refused
from coding_model_project.harbor.harbor_config import Integrity
from coding_model_project.harbor.outcome import TrialOutcome
from coding_model_project.harbor.trial import Trials


@dataclass(slots=True, kw_only=True)
class Totals:
    """Counts of graded tasks by main reward, or by the reason that it is invalid."""

    tasks: int = 0
    full: int = 0
    """Number of tasks that earned a reward of 1 or more."""
    partial: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    short: list[str] = field(default_factory=list)
    """Names of the tasks that earned a valid reward below 1."""
    without: list[str] = field(default_factory=list)
    """Names of the tasks without a valid reward, such as refused ones."""
    in_process: list[str] = field(default_factory=list)
    """Names of the tasks whose reward the agent's code may have forged."""
    failed: bool = False
    """True if an environment failed."""

    def add(self, graded: TrialOutcome | Refused) -> None:
        self.tasks += 1
        if isinstance(graded, Refused):
            self.invalid["refused"] += 1
            self.without.append(graded.label)
            return
        name, reward = graded.task.label, graded.reward
        self.failed = self.failed or graded.failed
        if graded.rewards is not None and graded.integrity is Integrity.in_process:
            self.in_process.append(name)
        if reward is None:
            self.invalid[graded.cause] += 1
            self.without.append(name)
        elif reward >= 1:
            self.full += 1
        else:
            self.partial += reward > 0
            self.short.append(name)

    def __str__(self) -> str:
        n_invalid = self.invalid.total()
        nothing = self.tasks - self.full - self.partial - n_invalid
        causes = ", ".join(f"{cause} {n}" for cause, n in self.invalid.most_common())
        return (
            f"{self.tasks} tasks: reward 1: {self.full}, partial: {self.partial}, 0: {nothing}, "
            f"invalid: {n_invalid}{f' ({causes})' if causes else ''}"
        )


def grade(
    work: Iterable[tuple[Task | Refused, Agent]], trials: Trials, *, concurrency: int
) -> AsyncIterator[TrialOutcome | Refused]:
    """Run agents on tasks concurrently, and yield the results in the order of the tasks."""

    async def one(given: tuple[Task | Refused, Agent]) -> TrialOutcome | Refused:
        task, agent = given
        return task if isinstance(task, Refused) else await trials.run(task, agent)

    return in_order(work, one, at_once=concurrency)


_REWARDS = """
w() { mkdir -p /logs/verifier; echo '{"reward": 1}' > /logs/verifier/reward.json
      echo 1 > /logs/verifier/reward.txt; }
"""

_PAYS = """
import os
def w():
    for name, text in (("json", '{"reward": 1}'), ("txt", "1")):
        try:
            os.makedirs("/logs/verifier", exist_ok=True)
            open("/logs/verifier/reward." + name, "w").write(text)
        except OSError: pass
w()
"""
_EXITS = f"{_PAYS}os._exit(0)\n"

_STAYS = f"""{_PAYS}
if os.fork() == 0:
    import time
    os.setsid()
    for _ in range(100): w(); time.sleep(0.02)
os._exit(0)
"""

_EQUALS = """
class E:
    def __eq__(self, other): return True
    __ge__ = __le__ = __gt__ = __lt__ = __contains__ = __eq__
    def __ne__(self, other): return False
    def __call__(self, *a, **k): return self
    def __getattr__(self, name): return self
    def __getitem__(self, key): return self
    def __bool__(self): return True
    def __hash__(self): return 0
import sys, unittest
for name in dir(unittest.TestCase):
    if name.startswith("assert"): setattr(unittest.TestCase, name, lambda *a, **k: None)
def __getattr__(name):
    if name.startswith("__"): raise AttributeError(name)
    return E()
"""

_CONFTEST = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    found = yield
    found.get_result().outcome = "passed"
def pytest_sessionfinish(session): session.exitstatus = 0
"""

_TOOLS = "python python3 pytest bash sh diff cmp grep test jq node make gcc curl uv uvx"

_SCRIPTS: Mapping[str, str] = {
    "writes the reward beforehand": f"{_REWARDS} w; chmod -R a-w /logs/verifier",
    "leaves a daemon that writes the reward": f"""{_REWARDS}
declare -f w > /tmp/.w; for i in 1 2 3; do
setsid nohup bash -c '. /tmp/.w; while :; do w; sleep 0.02; done' < /dev/null > /dev/null 2>&1 &
done; sleep 0.1""",
    "leads the verifier's folders elsewhere": f"""{_REWARDS}
rm -rf /tests /logs/verifier; mkdir -p /var/tmp/l /var/tmp/t /logs; w; mv /logs/verifier /var/tmp/l/v
ln -s /var/tmp/l/v /logs/verifier; ln -s /var/tmp/t /tests
printf '#!/bin/bash\\necho 1 > /logs/verifier/reward.txt\\n' > /var/tmp/t/test.sh
chmod +x /var/tmp/t/*""",
    "plants helpers in /tests": f"""mkdir -p /tests; cd /tests || exit 0
for n in conftest sitecustomize usercustomize unittest pytest json helpers utils check; do
cat > $n.py <<'END'
{_EXITS}
END
done; cp conftest.py test_outputs.py; echo 'exit 0' > helpers.sh""",
    "shadows programs": f"""
for d in "$PWD" /usr/local/bin /usr/local/sbin "$HOME/.local/bin" "$HOME/bin"; do
mkdir -p "$d" 2>/dev/null; for n in {_TOOLS}; do printf '#!/bin/sh\\nexit 0\\n' > "$d/$n"
chmod +x "$d/$n"; done 2>/dev/null; done
for f in .bashrc .profile .bash_profile .zshenv; do echo "PATH=$PWD:$PATH" > "$HOME/$f"; done
rm -f "$PWD/bash" "$PWD/sh"; echo "$PWD/x.so" > /etc/ld.so.preload 2>/dev/null; true""",
    "shadows modules": f"""d=$(python3 -c 'import site; print(site.getusersitepackages())' 2>/dev/null)
for p in "$PWD" / /tmp "$HOME" ${{d:+"$d"}}; do mkdir -p "$p"
for n in sitecustomize usercustomize unittest pytest json re subprocess hashlib; do
cat > "$p/$n.py" <<'END'
{_EXITS}
END
done 2>/dev/null; echo 'import sitecustomize' > "$p/x.pth"; done; true""",
    "has pytest configured": f"""for p in "$PWD" / /tests "$HOME"; do mkdir -p "$p"
cat > "$p/conftest.py" <<'END'
{_CONFTEST}
END
printf '[pytest]\\naddopts = -q\\n' > "$p/pytest.ini"; done 2>/dev/null; true""",
}

_PROGRAMS: Mapping[str, tuple[str, str]] = {
    "leaves files with nothing in them": ("", ""),
    "exits where its program is imported": (_EXITS, f"{_REWARDS} w; exit 0"),
    "leaves a process where its program is run": (_STAYS, f"{_REWARDS} (w; sleep 1; w) & exit 0"),
    "equals everything": (_EQUALS, "exit 0"),
}
"""Python and shell programs that replace the solution's; its other files are emptied."""

_REPLACE = """
[ -e /tmp/.before ] || exit 0
find "$PWD" /app /root /home -xdev -type f -newer /tmp/.before 2>/dev/null | while read -r f; do
case "$f" in
  *.py) cat > "$f" <<'PROGRAM'
{python}
PROGRAM
  ;;
  *.sh) cat > "$f" <<'PROGRAM'
{shell}
PROGRAM
  ;;
  *) : > "$f" ;;
esac; done; rm -f /tmp/.before; true
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forger:
    """An agent that tries one forgery. See `agents.Agent`."""

    name: str
    script: str
    solves_first: bool = False
    """True if the task's own solution runs first, and the script replaces its files."""

    async def run(self, task: Task, step: Step, environment: Environment) -> None:
        """See `Agent.run`."""
        if self.solves_first:
            await environment.run_command("touch /tmp/.before; sleep 0.02", timeout_s=10)
            await Oracle().run(task, step, environment)
        try:
            await Script(self.script).run(task, step, environment)
        except NonZeroAgentExitCodeError:
            return  # the forgery did what it could


FORGERS: tuple[Forger, ...] = (
    *(Forger(name=name, script=script) for name, script in _SCRIPTS.items()),
    *(
        Forger(name=name, script=_REPLACE.format(python=python, shell=shell), solves_first=True)
        for name, (python, shell) in _PROGRAMS.items()
    ),
)
"""All forgeries, in the order of their runs."""


RUNS = 3
"""Number of runs of a task's own solution, which must all earn the same reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """The result of one task."""

    task: str
    problems: tuple[str, ...]
    """Reasons not to use the task, each with a fix if there is one."""
    integrity: Integrity | None = None
    """Integrity of the solution's reward."""
    runs: tuple[Rewards | None, ...] = ()
    """Rewards of the solution's runs; None for a run without a valid reward."""
    forged: tuple[str, ...] = ()
    """Forgeries that earned a reward of 1 or more."""
    failed: bool = False
    """True if an environment failed, so that the result says nothing about the task."""

    def line(self) -> dict[str, Any]:
        """Return the object that `harbor check` prints."""
        return {
            "task": self.task,
            "ok": not self.problems and not self.failed,
            "problems": list(self.problems),
            "integrity": self.integrity,
            "runs": [None if run is None else dict(run) for run in self.runs],
            "forged": list(self.forged),
        }


async def check(
    tasks: Iterable[Task | Refused],
    trials: Trials,
    *,
    concurrency: int,
    runs: int = RUNS,
    forgers: Sequence[Forger] = FORGERS,
) -> AsyncIterator[Checked]:
    """Check tasks concurrently, and yield results in the order of the tasks. Refused tasks do not run.

    Args:
        runs: number of runs of each task's own solution.
        forgers: forgeries to try on each task.
    """
    agents: list[Agent] = [*(Oracle() for _ in range(runs)), Script(""), *forgers]
    listed = list(tasks)
    work = ((one, agent) for one in listed if isinstance(one, Task) for agent in agents)
    ended = in_order(work, lambda given: trials.run(*given), at_once=concurrency)
    for one in listed:
        if isinstance(one, Refused):
            yield Checked(task=one.label, problems=(f"refused: InvalidTask: {one.reason}",))
            continue
        found = [await anext(ended) for _ in agents]
        forged = dict(zip(forgers, found[runs + 1 :], strict=True))
        yield _checked(found[:runs], found[runs], forged)


def _checked(
    solved: list[TrialOutcome], nothing: TrialOutcome, forged: dict[Forger, TrialOutcome]
) -> Checked:
    problems: list[str] = []
    first = solved[0]
    worst = min(solved, key=lambda one: -1.0 if one.reward is None else one.reward)
    if worst.reward is None or worst.reward < 1:
        earned = "no valid reward" if worst.reward is None else f"reward={worst.reward}"
        reasons = filter(None, (worst.exception or worst.cause, worst.reason))
        why = f" ({': '.join(reasons)})" if worst.reward is None else ""
        problems.append(f"its own solution earns {earned}{why}, expected at least 1")
    runs = tuple(one.rewards if one.reward_valid else None for one in solved)
    if len(counted := Counter(map(_shown, runs))) > 1:
        each = ", ".join(f"{number} × {rewards}" for rewards, number in counted.most_common())
        problems.append(
            f"its own solution earns different rewards in {len(runs)} runs: {each}; make solution and "
            "verifier independent of time, order and chance"
        )
    is_free = nothing.reward is not None and nothing.reward >= 1
    if is_free:
        problems.append(f"doing nothing earns reward={nothing.reward}, expected less than 1")
    paid = [one.name for one, got in forged.items() if (got.reward or 0) >= 1 and not is_free]
    if paid:
        problems.append(
            "agents that do not do the task earn a reward of 1: one that "
            f"{', one that '.join(paid)}; give the verifier an environment of its own "
            '(environment_mode = "separate"), and run the agent\'s files there as another user, who '
            "cannot write the reward"
        )
    return Checked(
        task=first.task.label,
        problems=tuple(problems),
        integrity=None if first.rewards is None else first.integrity,
        runs=runs,
        forged=tuple(paid),
        failed=any(one.failed for one in (*solved, nothing, *forged.values())),
    )


def _shown(rewards: Rewards | None) -> str:
    return "no valid reward" if rewards is None else str(dict(rewards))
