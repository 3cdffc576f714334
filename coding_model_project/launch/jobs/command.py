"""A job's command, as words and as a shell script for machines that share this machine's disk."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from coding_model_project.launch.jobs.base import Job

_SCRIPT = """\
#!/bin/bash
{directives}cd {cwd} || exit 3
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
{finish}exit $code
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
    return _SCRIPT.format(
        directives="".join(f"{line}\n" for line in directives),
        cwd=shlex.quote(job.cwd),
        source=shlex.quote(os.path.join(job.folder, "source")),  # noqa: PTH118 - text, for a shell
        setup=setup,
        command=shlex.join(words(job, python)),
        finish=finish,
    )
