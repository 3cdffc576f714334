"""Loggers that survive a resume, and one run of W&B for each run's folder.

W&B that is down must not stop a training or hold it up for long: metrics.jsonl has all metrics.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from verl.utils import tracking

from coding_model_project.redaction import redacted
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.rollouts import end_last_line


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
    """Make verl's loggers append to metrics.jsonl, and start W&B, whose run verl then finds.

    Call it before verl creates its loggers, in the same process.
    """
    tracking.FileLogger = _AppendingFileLogger
    if "wandb" in config.trainer.logger:
        start_wandb(config)


_START_S = "30"
_OFFLINE_START_S = 120.0
"""Only a busy machine makes an offline start last."""


def run_id(run_dir: Path) -> str:
    """Return an id that all attempts of a run have in common, also in a folder that was moved."""
    made = RunFolder(run_dir).provenance()
    return hashlib.sha256(f"{made['host']} {made['created']}".encode()).hexdigest()[:16]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def start_wandb(config: DictConfig) -> None:
    """Start W&B's run, offline if the service is unreachable; `wandb sync` uploads it later.

    The environment variable WANDB_RUN_GROUP names the study or sweep that it belongs to.
    """
    import wandb
    from wandb.sdk.mailbox.mailbox_handle import ServerResponseError

    # A service that failed to start a run says from then on that its id is in use, so it must be our own
    # to end: not one that another run in a process above has named in the environment.
    os.environ.pop("WANDB_SERVICE", None)

    def start(within_s: float) -> Any:
        return wandb.init(
            project=config.trainer.project_name,
            name=config.trainer.experiment_name,
            id=os.environ.get("WANDB_RUN_ID") or run_id(Path(config.coding.run_dir)),
            resume=None if os.environ["WANDB_MODE"] == "offline" else "allow",
            config=redacted(OmegaConf.to_container(config, resolve=True)),
            settings=wandb.Settings(init_timeout=within_s),
        )

    try:
        run = start(float(os.environ.get("WANDB_INIT_TIMEOUT", _START_S)))
    except (wandb.Error, ServerResponseError) as error:
        reason = " ".join(str(error).split())[:200]
        _say(
            f"W&B cannot be reached ({reason}): logging offline; `wandb sync {config.coding.run_dir}"
            "/wandb/offline-run-*` uploads it later"
        )
        os.environ["WANDB_MODE"] = "offline"
        wandb.teardown()
        run = start(_OFFLINE_START_S)
    # verl calls it again, and each call leaves an empty folder.
    wandb.init = lambda **_: run  # pyrefly: ignore[bad-assignment]
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
                _say(
                    f"W&B's service has died ({error}): training continues without it; "
                    f"{run_dir}/metrics.jsonl has all metrics"
                )
                with contextlib.suppress(OSError, MailboxClosedError):
                    wandb.teardown()  # otherwise W&B retries at exit and prints a traceback

        return guarded

    # verl and `log_samples` call these.
    wandb.log, wandb.finish = while_it_lives(wandb.log), while_it_lives(wandb.finish)
