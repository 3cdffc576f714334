"""verl agent loop for any agent: it calls the gateway, which records the tokens to train on.

Harbor runs the trial: it makes the room, the agent works, and the verifier judges there. verl accepts
several outputs per sample, and gives all of them the advantage of the last. Each conversation of the
agent is one output, the longest last. An infrastructure failure is not an ending: the sample is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from omegaconf import DictConfig
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput

from coding_model_project.configs.schema import coding_of
from coding_model_project.errors import (
    GenerationError,
    HarborError,
)
from coding_model_project.grading.brief import plain_verdict
from coding_model_project.grading.retries import CircuitBreaker, Limiter
from coding_model_project.harbor.environment.base import Environment
from coding_model_project.harbor.gateway.gateway_agent import GatewayAgent, Work
from coding_model_project.harbor.gateway.recorder import Generated, Trajectory
from coding_model_project.harbor.gateway.requests import Ended, Message
from coding_model_project.harbor.gateway.serving import Gateway
from coding_model_project.harbor.gateway.session import (
    Following,
    Limits,
    Session,
    TemplateRefused,
)
from coding_model_project.harbor.grader import HarborGrader
from coding_model_project.harbor.harbor_config import Trained, require
from coding_model_project.launch.checks.episode_checks import task_environment
from coding_model_project.verl_ext.loops.conversation import Rollout, RunLoop, Sampling, only
from coding_model_project.verl_ext.rewards.judging import AGENT, JudgePool


class _Place:
    """Problems, rooms on this machine and the gateway, which the agents of a worker share."""

    def __init__(self, config: DictConfig) -> None:
        coding = coding_of(config)
        self.agent = coding.agent
        self.pool = JudgePool(coding)
        self.accepted = coding.harbor.integrity
        rollout, data = config.actor_rollout_ref.rollout, config.data
        self.limits = Limits(
            turns=self.agent.turns,
            reply_tokens=self.agent.reply_tokens,
            prompt_tokens=data.max_prompt_length,
            response_tokens=data.max_response_length,
            context_tokens=rollout.max_model_len
            or data.max_prompt_length + data.max_response_length,
            command_s=self.agent.command_s,
            output_bytes=self.agent.output_bytes,
        )
        self.grader = HarborGrader(
            limiter=Limiter(self.agent.rooms),
            breaker=CircuitBreaker(max_rate=coding.sandbox.max_failure_rate),
            environment=task_environment(coding),
        )
        self._gateway = Gateway(max_bytes=self.agent.request_bytes)
        self._starting: asyncio.Task[Gateway] | None = None

    async def gateway(self) -> Gateway:
        """Return the gateway; the first call starts it. It ends with the process."""
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._gateway.__aenter__())
        return await asyncio.shield(self._starting)


class GatewayLoop(RunLoop[_Place]):
    """An agent's work on one task."""

    places: ClassVar[dict[str, _Place]] = {}

    def place(self) -> _Place:
        return _Place(self.config)

    async def sample(
        self, place: _Place, sampling: Sampling, row: Mapping[str, Any]
    ) -> list[AgentLoopOutput]:
        problem = place.pool.problem(str(row["reward_model"]["ground_truth"]))
        policy, codec = _Policy(self, sampling, row), _Codec(self)

        def begin(environment: Environment, user: str | int | None) -> Session:
            return Session(
                policy,
                codec,
                place.limits,
                environment=environment,
                user=user,
            )

        agent = GatewayAgent(config=place.agent, gateway=await place.gateway(), begin=begin)
        verdict = await place.grader.grade_agent(problem, agent, lambda: "")
        require(verdict, place.accepted)
        work = only(agent.works, problem.id)
        train, recorder = place.agent.train, work.session.recorder
        found = recorder.trajectories(
            1 if train is Trained.main else place.agent.conversations,
            only_tools=train is Trained.tools,
        )
        if not found:
            why = (
                "its conversations were offered no tools, which coding.agent.train=tools leaves out"
                if recorder.turns
                else f"it ended ({work.ending}) before the model replied"
            )
            raise HarborError(
                f"{problem.id}: nothing of the agent to train on, because {why}: "
                f"{work.said[-300:] or 'it printed nothing'!r}"
            )
        record = _record(work, found) | {"verdict": plain_verdict(verdict)}
        return [
            policy.output(one, extra={AGENT: record} if one is found[-1] else {AGENT: None})
            for one in found
        ]


def _record(work: Work, trained: Sequence[Trajectory]) -> dict[str, Any]:
    """Return an agent's work as plain data, for the reward manager and rollouts.jsonl."""
    generated = work.session.recorder.n_generated + work.session.n_undelivered
    return {
        "ending": str(work.ending),
        "exit_code": work.exit_code,
        "said": work.said,
        "agent_s": work.seconds,
        "commands": len(work.session.commands),
        "command_s": sum(work.session.commands),
        "turns": len(work.session.recorder.turns),
        "ignored": sorted(work.session.ignored),
        "conversations": len(trained),
        "generated_tokens": generated,
        "untrained_tokens": generated - sum(one.trained for one in trained),
        "replies": [{"start": start, "end": end} for start, end in trained[-1].spans],
    }


class _Policy:
    """The model in training, as `gateway.session.Policy`; one per sample."""

    def __init__(self, loop: AgentLoopBase, sampling: Sampling, row: Mapping[str, Any]) -> None:
        tokenizer: Any = loop.tokenizer
        self._end = tokenizer.eos_token_id
        self._rollout = Rollout(loop, sampling, row)

    async def generate(
        self, prompt: Sequence[int], *, max_tokens: int, stop: Sequence[str]
    ) -> Generated:
        """See `gateway.session.Policy.generate`.

        Raises:
            GenerationError: the rollout returned no answer.
        """
        params = {"max_tokens": max_tokens} | ({"stop": list(stop)} if stop else {})
        try:
            output = await self._rollout.generate(prompt, **params)
        except Exception as error:
            reason = " ".join(str(error).split())[-300:] or type(error).__name__
            raise GenerationError(f"the rollout returned no answer: {reason}") from error
        ids = tuple(output.token_ids)
        if not ids:
            raise GenerationError("the rollout returned an answer without tokens: it was aborted")
        return Generated(
            ids=ids,
            log_probs=tuple(output.log_probs) if self._rollout.gives_log_probs else None,
            ended=self._ended(ids, max_tokens, stops=bool(stop)),
        )

    def _ended(self, ids: Sequence[int], max_tokens: int, *, stops: bool) -> Ended:
        if ids[-1] == self._end:
            return Ended.model
        if len(ids) >= max_tokens:
            return Ended.length
        return Ended.stop if stops else Ended.model

    def output(self, one: Trajectory, *, extra: Mapping[str, Any]) -> AgentLoopOutput:
        """See `Rollout.output`."""
        return self._rollout.output(
            prompt=one.prompt,
            response=one.response,
            mask=one.mask,
            log_probs=one.log_probs,
            num_turns=2 * len(one.spans),
            extra=extra,
        )


class _Codec:
    """The model's chat template as `gateway.session.Codec`, with verl's continuous-token builder."""

    def __init__(self, loop: AgentLoopBase) -> None:
        self._builder: Any = loop.continuous_token_builder
        self._tokenizer: Any = loop.tokenizer

    def opening(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> Sequence[int]:
        """See `gateway.session.Codec.opening`."""
        try:
            return self._builder.build_initial_tokens(list(messages), tools=list(tools) or None)
        except Exception as error:
            raise _refused(error) from error

    def following(
        self,
        messages: Sequence[Message],
        known: int,
        tools: Sequence[Mapping[str, Any]],
        ids: Sequence[int],
        *,
        ended: Ended,
    ) -> Following:
        """See `gateway.session.Codec.following`."""
        end = self._tokenizer.eos_token_id
        is_open = ended is not Ended.model and end is not None
        before = [*ids, end] if is_open else list(ids)  # close a reply that was cut off
        try:
            merged = self._builder.merge_context_tokens(
                list(messages[:known]), list(messages), before, tools=list(tools) or None
            )
        except Exception as error:
            raise _refused(error) from error
        dropped = max(0, merged.removed_prefix_token_count - is_open)
        return Following(added=merged.token_ids[len(ids) - dropped :], dropped=dropped)

    def decode(self, ids: Sequence[int]) -> str:
        """See `gateway.session.Codec.decode`."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True)


def _refused(error: Exception) -> TemplateRefused:
    reason = " ".join(str(error).split())[:300]
    return TemplateRefused(f"the model's chat template refuses these messages: {reason}")
