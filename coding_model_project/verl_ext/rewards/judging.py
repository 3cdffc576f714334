"""Shared parts of verl's judging processes: problems, a judge, and notes of ungradable samples."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from coding_model_project.configs.schema import CodingConfig
from coding_model_project.data.governance import as_rewarded
from coding_model_project.data.problems import ProblemFile
from coding_model_project.errors import (
    CodingModelError,
    DataError,
    SandboxError,
    UngradableError,
)
from coding_model_project.grading.judge import Graders, open_judge
from coding_model_project.grading.rewards import RewardKind
from coding_model_project.harbor import task_grader
from coding_model_project.runs.rollouts import Ungradable, note, reason_of
from coding_model_project.types import Problem

ATTEMPTS = "attempts"
"""Key in an agent loop's extra fields of the attempts from `repair_loop`, for the reward manager.

verl's own loop has no such key: its response is the only attempt."""

EPISODE = "bash_episode"
"""Key of a bash agent's episode, which its agent loop has judged: ending, replies
(`bash_loop`) and verdict, as plain data."""

_SHOWN = 80
"""Characters of a ground truth that name a sample; it may be a row's tests."""

AGENT = "agent_work"
"""Key of an agent's work at the gateway, from `gateway_loop`."""


EPISODES = (ATTEMPTS, EPISODE, AGENT)
"""Keys of an agent loop's extra fields that the reward manager reads."""
ROW_KEYS = ("uid", "session_id", "global_steps", "reward_model")
"""Fields of a row by which a sample is judged, or noted as left out."""


def last_response(data: Any) -> list[int]:
    """Return the token ids of a trajectory's last output, without padding.

    Args:
        data: verl's batch of the trajectory's outputs. verl pads several of them behind prompt and
            response, so the mask does not tell where a response ends, and gives lengths.
    """
    item = data[-1:][0]
    responses = item.batch["responses"]
    if len(data) > 1:
        length = item.non_tensor_batch["response_len"]
    else:
        length = item.batch["attention_mask"][-responses.shape[-1] :].sum()
    return responses[: int(length)].tolist()


class ModelsTurn:
    """A tokenizer that decodes only the model's last turn of a response.

    The response of an agent loop holds the answers of tools between the model's turns, and verl gives a
    reward manager no mask of them. Each turn of the model follows the chat template's generation prompt;
    verl's loops end with one.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._opening: list[int] = []
        if getattr(tokenizer, "chat_template", None):
            said = [{"role": "user", "content": "?"}]
            with suppress(TemplateError):  # of a template that takes no such message
                asked, opened = (
                    tokenizer.apply_chat_template(
                        said, add_generation_prompt=opens, return_dict=False
                    )
                    for opens in (False, True)
                )
                self._opening = list(opened[len(asked) :])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def start(self, tokens: Any, turns: int | None = None) -> int:
        """Return where the model's last turn begins.

        Args:
            tokens: token ids of a response, as a list or tensor.
            turns: verl's number of messages; 2 are a prompt and an answer.

        Raises:
            DataError: there are several turns, and the last one is not found.
        """
        if turns is not None and turns <= 2:
            return 0
        ids = tokens if isinstance(tokens, list) else tokens.tolist()
        n = len(self._opening)
        found = n and next(
            (i for i in range(len(ids), 0, -1) if ids[i - n : i] == self._opening), 0
        )
        if turns is not None and not found:
            raise DataError(
                f"a response of {turns} messages: the model's last turn is not found, since the chat "
                "template has no generation prompt; nothing else may count as the model's answer"
            )
        return found

    def decode(self, tokens: Any, **options: Any) -> str:
        """Decode the last turn."""
        return self._tokenizer.decode(tokens[self.start(tokens) :], **options)


class JudgePool:
    """The problems of `coding.problems` by id, and a judge that starts on first use."""

    def __init__(self, coding: CodingConfig) -> None:
        """Open the files of problems.

        Raises:
            DataError: this node lacks a file, or it is malformed.
        """
        self._coding = coding
        self._files = [_open_here(path) for path in reversed(coding.problems)]
        self._stack = AsyncExitStack()
        self._starting: asyncio.Task[Graders] | None = None

    def knows(self, problem_id: object) -> bool:
        """Return whether a file of coding.problems has a problem of this id."""
        return isinstance(problem_id, str) and any(problem_id in file for file in self._files)

    def problem(self, problem_id: str) -> Problem:
        """Return a problem by its id, as rewards judge it.

        Raises:
            DataError: no file of coding.problems has it, or its file was changed in place.
        """
        for file in self._files:
            if (problem := file.get(problem_id)) is not None:
                return as_rewarded(problem)
        raise DataError(
            f"{problem_id}: a row of data.* uses this problem, but no file of coding.problems has it"
        )

    async def judge(self) -> Graders:
        """Return the judge, starting it if necessary.

        If a start fails, all callers that wait for it get its error, and the next call starts it again.
        """
        if self._starting is None:
            coding = self._coding
            opened = open_judge(
                coding.sandbox,
                style=coding.prompt,
                stop_early=coding.reward.kind == RewardKind.sparse,
                tasks=task_grader,
                environment=coding.harbor.place(),
            )
            self._starting = asyncio.ensure_future(self._stack.enter_async_context(opened))
        starting = self._starting
        try:
            return await asyncio.shield(starting)
        except CodingModelError:
            if self._starting is starting:
                self._starting = None
            raise


def _open_here(path: str) -> ProblemFile:
    """Open a file of problems on this node.

    Raises:
        DataError: names the node and the file.
    """
    try:
        return ProblemFile(path)
    except (DataError, OSError) as error:
        raise DataError(
            f"coding.problems={path}: node {socket.gethostname()} cannot read it ({error}); put it "
            "where every node can"
        ) from error


@contextmanager
def leaving_out(run_dir: Path | None, row: Mapping[str, Any]) -> Iterator[None]:
    """Note in the run's ungradable.jsonl why a sample is dropped, if the body fails.

    Args:
        run_dir: the run's folder; None prints the reason instead.
        row: row of verl's batch, as agent loops and reward managers get it.

    Raises:
        CodingModelError: the failure, after which verl drops the sample. It has no traceback, since verl
            would print one per sample and the message names the origin.
    """
    try:
        yield
    except CodingModelError as error:
        _note(run_dir, row, error)
        raise error.with_traceback(None) from None
    except OSError as error:  # such as a full disk on this node
        failed = SandboxError(f"node {socket.gethostname()}: {error}")
        _note(run_dir, row, failed)
        raise failed from error


def _note(run_dir: Path | None, row: Mapping[str, Any], error: CodingModelError) -> None:
    """Note a dropped sample in ungradable.jsonl, or print it if the file cannot be written."""
    host = socket.gethostname()
    lost = Ungradable(
        step=int(row["global_steps"]),
        problem=str(row["reward_model"]["ground_truth"])[:_SHOWN],
        sample=f"{row['uid']}_{row['session_id']}",
        error=type(error).__name__,
        reason=reason_of(error),
        judge_s=error.judge_s if isinstance(error, UngradableError) else 0.0,
        at=time.time(),
        host=host,
    )
    unwritten = ""
    try:
        if run_dir is not None:
            note(run_dir, lost)
            return
    except OSError as error_there:
        unwritten = f", which {run_dir}/ungradable.jsonl could not take ({error_there.strerror})"
    print(  # noqa: T201
        f"node {host}: a sample of {lost.problem} is left out{unwritten}: {lost.error}: {lost.reason}",
        file=sys.stderr,
        flush=True,
    )
