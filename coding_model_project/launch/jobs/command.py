"""A job's command, as words and as a shell script for machines that share this machine's disk."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from coding_model_project.launch.jobs.base import Job, JobState, state_of_exit

LOG = "log.txt"
_EXIT = "exit_code"

_SCRIPT = """\
#!/bin/bash
{directives}cd {cwd} || exit 3
rm -f {exit_file}
export PYTHONPATH={source}${{PYTHONPATH:+:$PYTHONPATH}} PYTHONSAFEPATH=1  # the code as it was submitted
{setup}# On TERM the run saves a checkpoint and ends with 130. `jobs stop` sends USR1 for the same.
# Forward TERM once only: a second TERM would end the run without a checkpoint.
ask() {{ [ -n "$asked" ] && return; asked=1; [ -z "$run" ] || kill -TERM $run; }}
trap ask TERM
trap 'stopped=1; ask' USR1
{command} &
run=$!
[ -z "$asked" ] || kill -TERM $run  # the signal came before the run started
while kill -0 $run 2>/dev/null; do wait $run; done
wait $run; code=$?
{finish}echo $code > {exit_file}
exit $code
"""


def words(job: Job, python: str) -> list[str]:
    """Return the command that a job runs.

    Args:
        python: the interpreter on the machine where it runs.
    """
    recipe = [f"recipes.{job.recipe}", *job.overrides]
    if job.evaluation is None:
        return [python, "-m", *recipe]
    beside = ["--gpus", str(job.evaluation.gpus), f"--arguments={job.evaluation.arguments}"]
    return [python, "-m", "coding_model_project.launch.jobs.beside", *beside, "--", *recipe]


def script(
    job: Job, python: str, *, directives: Sequence[str] = (), setup: str = "", finish: str = ""
) -> str:
    """Return the script of a job that runs from the unpacked source in its folder.

    Args:
        directives: comment lines for a scheduler.
        setup: lines before the command.
        finish: lines after the command; they can use its exit code `$code`, and `$stopped`, which is
            set if `jobs stop` ended it.
    """
    folder = Path(job.folder)
    return _SCRIPT.format(
        directives="".join(f"{line}\n" for line in directives),
        cwd=shlex.quote(job.cwd),
        source=shlex.quote(str(folder / "source")),
        exit_file=shlex.quote(str(folder / _EXIT)),
        setup=setup,
        command=shlex.join(words(job, python)),
        finish=finish,
    )


def written_state(job: Job) -> JobState | None:
    """Return the state of a job from the exit code that its script wrote; None if it wrote none."""
    file = Path(job.folder, _EXIT)
    code = file.read_text().strip() if file.exists() else ""
    return state_of_exit(int(code)) if code else None


def read_log(job: Job) -> bytes:
    """Return the content of a job's log file; empty before it exists."""
    file = Path(job.folder, LOG)
    return file.read_bytes() if file.exists() else b""
