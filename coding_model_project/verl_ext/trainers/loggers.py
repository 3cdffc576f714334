"""Loggers that survive a resume, and a W&B that is unreachable or dies."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl.utils import tracking

from coding_model_project.redaction import redacted
from coding_model_project.runs.rollouts import Rollout, end_last_line

_WANDB_TIMEOUT_S = "30"
_CELL_CHARACTERS = 4_000


class _AppendingFileLogger(tracking.FileLogger):
    """verl's file logger, but a resumed run appends to the file instead of truncating it.

    Steps between the last checkpoint and a kill appear twice; the later row counts.
    """

    def __init__(self, project_name: str, experiment_name: str) -> None:
        self.project_name, self.experiment_name = project_name, experiment_name
        self.filepath = os.environ["VERL_FILE_LOGGER_PATH"]
        end_last_line(Path(self.filepath))
        self.fp = open(self.filepath, "ab", buffering=0)  # noqa: SIM115 - `finish` closes it


def prepare_loggers(config: DictConfig) -> None:
    """Make verl's loggers append to metrics.jsonl, and start W&B.

    Call it before verl creates its loggers, in the same process.
    """
    tracking.FileLogger = _AppendingFileLogger
    if "wandb" in config.trainer.logger:
        _start_wandb(config)


def _start_wandb(config: DictConfig) -> None:
    """Start W&B's run, which verl then reuses; offline if the service is unreachable.

    A tracker that is down must not stop a training. The files in `wandb/` hold everything, and
    `wandb sync` uploads them later.
    """
    import wandb

    def start() -> None:
        wandb.init(
            project=config.trainer.project_name,
            name=config.trainer.experiment_name,
            config=redacted(OmegaConf.to_container(config, resolve=True)),  # type: ignore[arg-type]
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
    """Keep training if W&B's service process dies, and print that once."""
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
                    f"W&B's service has died ({error}): training continues without it; "
                    f"{run_dir}/metrics.jsonl has all metrics",
                    file=sys.stderr,
                    flush=True,
                )
                with contextlib.suppress(OSError, MailboxClosedError):
                    wandb.teardown()  # otherwise W&B retries at exit and prints a traceback

        return guarded

    # verl, which finds the existing run, and `log_samples` call these.
    wandb.log, wandb.finish = while_it_lives(wandb.log), while_it_lives(wandb.finish)


_COLUMNS = ("problem", "verdict", "reward", "completion", "detail")


def log_samples(backends: dict[str, Any], samples: Sequence[Rollout], step: int) -> None:
    """Log a table of samples to W&B and TensorBoard, if they are among verl's tracking backends."""
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
    """Return one section per sample, since TensorBoard's tables drop the line breaks of code."""
    return "\n\n".join(
        f"**{problem}**: {verdict}, reward {reward:g} {detail}\n\n{_indented(completion)}"
        for problem, verdict, reward, completion, detail in rows
    )


def _indented(code: str) -> str:
    return "\n".join("    " + line for line in code.splitlines())
