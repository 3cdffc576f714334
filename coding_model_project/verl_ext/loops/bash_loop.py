"""An episode of the bash agent on a Harbor task as verl's agent loop; `episodes.bash` has its rules.

    prompt | reply with a command | what came of it | reply … | last reply
    mask     1 1 1 1 1 1 1 1 1 1    0 0 0 0 0 0 0 0   1 1 1     1 1 1 1 1

In form `tools` a command is a call of the tool `bash`, and what came of it a message of role `tool`.

The trial is Harbor's: the room is made, the model works in it, and the verifier judges there. An episode
ends as an `Ending` says, and is rewarded for what was done by then; where no observation with another
whole reply fits into `data.max_response_length`, that is `context`. What the infrastructure did is no
ending: the sample is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from coding_model_project.configs.typed import coding_of
from coding_model_project.episodes.bash import ContextOverflow, Episode, Limits, Reply
from coding_model_project.episodes.bash_messages import Calls
from coding_model_project.episodes.tool_calls import parse
from coding_model_project.errors import (
    DataError,
    GenerationError,
    HarborError,
)
from coding_model_project.grading.limiter import CircuitBreaker, Limiter
from coding_model_project.grading.prompts import Message
from coding_model_project.grading.verdict_rows import plain_verdict
from coding_model_project.harbor.bash_agent import BashAgent
from coding_model_project.harbor.grader import HarborGrader
from coding_model_project.harbor.integrity import require
from coding_model_project.launch.checks.bash_checks import reply_tokens
from coding_model_project.verl_ext.loops.conversation import Answer, Conversation
from coding_model_project.verl_ext.loops.rollout import Sampling
from coding_model_project.verl_ext.rewards.judging import (
    EPISODE,
    JudgePool,
    leaving_out,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One reply of an episode: where its tokens lie in the response, and what came of it."""

    start: int
    end: int
    command: str | None
    exit_code: int | None
    observation: str | None
    command_s: float
    reply_s: float | None
    """Wall seconds until the reply was there, its wait for the rollout included."""


class _Place:
    """What the episodes of a worker share: problems, and rooms on this machine."""

    def __init__(self, config: DictConfig) -> None:
        coding = coding_of(config)
        self.pool = JudgePool(coding)
        bash = coding.bash
        self.limits = Limits(
            turns=bash.turns,
            command_s=bash.command_s,
            total_s=bash.total_s,
            output_bytes=bash.output_bytes,
        )
        self.calls = bash.calls
        self.accepted = coding.harbor.integrity
        breaker = CircuitBreaker(max_rate=coding.sandbox.max_failure_rate)
        self.grader = HarborGrader(
            limiter=Limiter(bash.rooms), breaker=breaker, environment=coding.harbor.place()
        )


_places: dict[str, _Place] = {}
"""This process's one, by its run's folder. Its rooms end with the process, however that ends."""


class BashLoop(AgentLoopBase):
    """verl makes one for each sample."""

    async def run(self, sampling_params: Sampling, **kwargs: Any) -> AgentLoopOutput:
        """One episode.

        Raises:
            UngradableError: the room failed, or no truthful verdict can be given: verl leaves the sample
                out.
        """
        run_dir = self.config.coding.run_dir
        if run_dir not in _places:
            _places[run_dir] = _Place(self.config)
        with leaving_out(Path(run_dir), kwargs):
            return await self._run(_places[run_dir], sampling_params, kwargs)

    async def _run(
        self, place: _Place, sampling_params: Sampling, row: Mapping[str, Any]
    ) -> AgentLoopOutput:
        problem = place.pool.problem(str(row["reward_model"]["ground_truth"]))
        model = _Policy(self, sampling_params, row, place.calls)
        agent = BashAgent(model, place.limits, place.calls)

        def work() -> str:
            turns = [turn for episode in agent.episodes for turn in episode.turns]
            return "\n".join(turn.command for turn in turns if turn.command is not None)

        verdict = await place.grader.grade_agent(problem, agent, work)
        require(verdict, place.accepted)
        episode = _only(agent, problem.id)
        if not model.spans:
            raise HarborError(
                f"{problem.id}: no reply came within the episode's time (coding.bash.total_s, or the "
                "task's [agent] timeout_sec), so that there is nothing to train on"
            )
        # A command that the task's own time-out interrupted has a reply's tokens and no turn.
        replies = [
            asdict(
                Told(
                    start=start,
                    end=end,
                    command=turn.command,
                    exit_code=turn.exit_code,
                    observation=turn.observation,
                    command_s=turn.command_s,
                    reply_s=turn.reply.seconds,
                )
            )
            for (start, end), turn in zip(model.spans, episode.turns, strict=False)
        ]
        told = {
            "ending": str(episode.ending),
            "replies": replies,
            "verdict": plain_verdict(verdict),
        }
        return model.output(num_turns=len(episode.messages) - 1, told=told)


def _only(agent: BashAgent, problem_id: str) -> Episode:
    """Raises:
    DataError: the task has several steps.
    """
    if len(agent.episodes) != 1:
        raise DataError(f"{problem_id}: its task has several steps, and an episode is of one")
    return agent.episodes[0]


def _told(messages: Sequence[Message]) -> list[Message]:
    """The messages after the last reply."""
    told = list(takewhile(lambda message: message["role"] != "assistant", reversed(messages)))
    return told[::-1]


class _Policy:
    """The model that is trained, as the bash agent asks it. See `episodes.bash.Model`."""

    def __init__(
        self, loop: AgentLoopBase, sampling: Sampling, row: Mapping[str, Any], calls: Calls
    ) -> None:
        self._loop, self._sampling, self._row, self._calls = loop, sampling, row, calls
        self._reply_tokens = reply_tokens(loop.config)
        self._max_response: int = loop.rollout_config.response_length
        self._talk: Conversation | None = None
        self.spans: list[tuple[int, int]] = []
        """Of each reply's tokens."""

    async def reply(self, messages: Sequence[Message], max_tokens: int | None) -> Reply:
        """See `episodes.bash.Model.reply`.

        Raises:
            GenerationError: the rollout could not be asked. An OSError would pass for one of the room's.
        """
        try:
            answer = await self._answer(messages, max_tokens)
        except OSError as error:
            raise GenerationError(f"the rollout gave no answer: {error}") from error
        self.spans.append((answer.start, answer.end))
        if self._calls is Calls.block:
            return Reply(text=answer.text, tokens=answer.tokens, cut=answer.truncated)
        parsed = parse(answer.text)
        return Reply(
            text=parsed.content or "",
            tokens=answer.tokens,
            cut=answer.truncated,
            calls=parsed.calls,
        )

    async def _answer(self, messages: Sequence[Message], max_tokens: int | None) -> Answer:
        if self._talk is None:
            self._talk = await Conversation.begin(
                self._loop, messages, self._sampling, self._row, tools=self._calls.schemas
            )
        else:
            most = self._max_response - self._reply_tokens
            if not await self._talk.tell(*_told(messages), max_response=most):
                raise ContextOverflow(f"data.max_response_length={self._max_response} is used up")
        return await self._talk.answer(min(self._reply_tokens, max_tokens or self._reply_tokens))

    def output(self, num_turns: int, told: dict[str, Any]) -> AgentLoopOutput:
        assert self._talk is not None
        return self._talk.output(num_turns, **{EPISODE: told})
