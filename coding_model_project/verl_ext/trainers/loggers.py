"""The loggers of a run that may be resumed, and whose W&B may be out of reach or die."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl.utils import tracking

from coding_model_project.runs.rollouts import Rollout, end_last_line

_WANDB_TIMEOUT_S = "30"
_CELL_CHARACTERS = 4_000


class _AppendingFileLogger(tracking.FileLogger):
    """verl's file logger, but a resumed run adds to the file instead of emptying it.

    The steps between the last checkpoint and a kill are there twice; the later row counts.
    """

    def __init__(self, project_name: str, experiment_name: str) -> None:
        self.project_name, self.experiment_name = project_name, experiment_name
        self.filepath = os.environ["VERL_FILE_LOGGER_PATH"]
        end_last_line(Path(self.filepath))
        self.fp = open(self.filepath, "ab", buffering=0)  # noqa: SIM115 - `finish` closes it


def prepare_loggers(config: DictConfig) -> None:
    """Before verl makes its loggers, in the same process: append to metrics.jsonl, reach W&B."""
    tracking.FileLogger = _AppendingFileLogger
    if "wandb" in config.trainer.logger:
        _start_wandb(config)


def _start_wandb(config: DictConfig) -> None:
    """W&B's run, which verl then takes over; offline if the service cannot be had.

    A tracker that is down must not keep a cluster from training: the files in `wandb/` hold all of
    it, and `wandb sync` uploads them later.
    """
    import wandb

    def start() -> None:
        wandb.init(
            project=config.trainer.project_name,
            name=config.trainer.experiment_name,
            config=OmegaConf.to_container(config, resolve=True),  # type: ignore[arg-type]
            settings=wandb.Settings(
                init_timeout=float(os.environ.get("WANDB_INIT_TIMEOUT", _WANDB_TIMEOUT_S))
            ),
        )

    try:
        start()
    except wandb.Error as error:
        reason = " ".join(str(error).split())[:200]
        print(  # noqa: T201
            f"W&B cannot be reached ({reason}): logging offline; `wandb sync {config.coding.run_dir}"
            "/wandb/offline-run-*` uploads it later",
            file=sys.stderr,
            flush=True,
        )
        os.environ["WANDB_MODE"] = "offline"
        wandb.teardown()
        start()
    _outlive_wandb(config.coding.run_dir)


def _outlive_wandb(run_dir: str) -> None:
    """W&B's service is a process that may die: say so once, and train on without it."""
    import wandb
    from wandb.sdk.mailbox import HandleAbandonedError, MailboxClosedError

    lost = False

    def while_it_lives(call: Callable[..., None]) -> Callable[..., None]:
        def guarded(*args: Any, **kwargs: Any) -> None:
            nonlocal lost
            if lost:
                return
            try:
                call(*args, **kwargs)
            except (OSError, wandb.Error, HandleAbandonedError, MailboxClosedError) as error:
                lost = True
                print(  # noqa: T201
                    f"W&B's service has died ({error}): training goes on without it, "
                    f"{run_dir}/metrics.jsonl has all there is",
                    file=sys.stderr,
                    flush=True,
                )
                with contextlib.suppress(OSError, MailboxClosedError):
                    wandb.teardown()  # or it would be tried, with a traceback, at this process's end

        return guarded

    # verl, which finds the run that is there already, and `log_samples` call these.
    wandb.log, wandb.finish = while_it_lives(wandb.log), while_it_lives(wandb.finish)


_COLUMNS = ("problem", "verdict", "reward", "completion", "detail")


def log_samples(backends: dict[str, Any], samples: Sequence[Rollout], step: int) -> None:
    """A table of samples in W&B and TensorBoard, where they are among verl's tracking backends."""
    rows = [
        (
            sample.problem,
            sample.verdict["error"] or "accepted",
            sample.reward,
            sample.completion[:_CELL_CHARACTERS],
            sample.verdict["detail"],
        )
        for sample in samples
    ]
    if "wandb" in backends:
        import wandb

        table = wandb.Table(columns=list(_COLUMNS), data=[list(row) for row in rows])
        wandb.log({"samples": table}, step=step)
    if "tensorboard" in backends:
        backends["tensorboard"].writer.add_text("samples", _markdown(rows), step)


def _markdown(rows: Sequence[tuple[Any, ...]]) -> str:
    """A sample per section: TensorBoard's tables would swallow the line breaks of code."""
    return "\n\n".join(
        f"**{problem}**: {verdict}, reward {reward:g} {detail}\n\n{_indented(completion)}"
        for problem, verdict, reward, completion, detail in rows
    )


def _indented(code: str) -> str:
    return "\n".join("    " + line for line in code.splitlines())
