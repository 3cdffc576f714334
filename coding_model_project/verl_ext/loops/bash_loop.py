"""verl agent loop for an episode of the bash agent on a Harbor task; `episodes.bash` has the rules.

    prompt | reply with a command | observation     | reply … | last reply
    mask     1 1 1 1 1 1 1 1 1 1    0 0 0 0 0 0 0 0   1 1 1     1 1 1 1 1

With `coding.bash.calls=tools` a command is a call of the tool `bash`, its observation a `tool` message.

Harbor runs the trial: it makes the room, the model works in it, and the verifier judges there. `Ending`
lists how an episode ends; the reward is for the work done by then. The ending is `context` if an
observation and another whole reply do not fit into `data.max_response_length`. An infrastructure failure
is not an ending: the sample is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any, ClassVar

from omegaconf import DictConfig
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from coding_model_project.configs.schema import coding_of
from coding_model_project.episodes.bash import Calls, ContextOverflow, Limits, Reply
from coding_model_project.episodes.tool_calls import parse
from coding_model_project.errors import (
    GenerationError,
    HarborError,
)
from coding_model_project.grading.brief import plain_verdict
from coding_model_project.grading.prompts import Message
from coding_model_project.grading.retries import CircuitBreaker, Limiter
from coding_model_project.harbor.agents import BashAgent
from coding_model_project.harbor.grader import HarborGrader
from coding_model_project.harbor.harbor_config import require
from coding_model_project.launch.checks.episode_checks import reply_tokens
from coding_model_project.verl_ext.loops.conversation import (
    Answer,
    Conversation,
    RunLoop,
    Sampling,
    only,
)
from coding_model_project.verl_ext.rewards.judging import EPISODE, JudgePool


class _Place:
    """The problems, and the rooms on this machine, that the episodes of a worker share."""

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


class BashLoop(RunLoop[_Place]):
    """An episode of the bash agent."""

    places: ClassVar[dict[str, _Place]] = {}

    def place(self) -> _Place:
        return _Place(self.config)

    async def sample(
        self, place: _Place, sampling: Sampling, row: Mapping[str, Any]
    ) -> AgentLoopOutput:
        problem = place.pool.problem(str(row["reward_model"]["ground_truth"]))
        model = _Policy(self, sampling, row, place.calls)
        agent = BashAgent(model, place.limits, place.calls)

        def work() -> str:
            turns = [turn for episode in agent.episodes for turn in episode.turns]
            return "\n".join(turn.command for turn in turns if turn.command is not None)

        verdict = await place.grader.grade_agent(problem, agent, work)
        require(verdict, place.accepted)
        episode = only(agent.episodes, problem.id)
        if not model.spans:
            raise HarborError(
                f"{problem.id}: no reply arrived within the episode's time limit (coding.bash.total_s or "
                "the task's [agent] timeout_sec), so there is nothing to train on"
            )
        # A command that the task's own time-out interrupted has reply tokens but no turn.
        replies = [
            {
                "start": start,  # of its tokens in the response
                "end": end,
                "command": turn.command,
                "exit_code": turn.exit_code,
                "observation": turn.observation,
                "command_s": turn.command_s,
                "reply_s": turn.reply.seconds,  # with its wait for the rollout
            }
            for (start, end), turn in zip(model.spans, episode.turns, strict=False)
        ]
        record = {
            "ending": str(episode.ending),
            "replies": replies,
            "verdict": plain_verdict(verdict),
        }
        return model.output(num_turns=len(episode.messages) - 1, record=record)


class _Policy:
    """The model in training, as the bash agent's `episodes.bash.Model`."""

    def __init__(
        self, loop: AgentLoopBase, sampling: Sampling, row: Mapping[str, Any], calls: Calls
    ) -> None:
        self._loop, self._sampling, self._row, self._calls = loop, sampling, row, calls
        self._reply_tokens = reply_tokens(loop.config)
        self._max_response: int = loop.rollout_config.response_length
        self._talk: Conversation | None = None
        self.spans: list[tuple[int, int]] = []
        """Token span of each reply in the response."""

    async def reply(self, messages: Sequence[Message], max_tokens: int | None) -> Reply:
        """See `episodes.bash.Model.reply`.

        Raises:
            GenerationError: the rollout could not be reached. An OSError would look like the room's.
        """
        try:
            answer = await self._answer(messages, max_tokens)
        except OSError as error:
            raise GenerationError(f"the rollout returned no answer: {error}") from error
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
            said = takewhile(lambda one: one["role"] != "assistant", reversed(messages))
            if not await self._talk.tell(*reversed(list(said)), max_response=most):
                raise ContextOverflow(f"data.max_response_length={self._max_response} is used up")
        return await self._talk.answer(min(self._reply_tokens, max_tokens or self._reply_tokens))

    def output(self, num_turns: int, record: dict[str, Any]) -> AgentLoopOutput:
        assert self._talk is not None
        return self._talk.output(num_turns, **{EPISODE: record})
