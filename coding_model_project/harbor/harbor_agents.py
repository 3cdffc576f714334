"""Agents for Harbor's own runner, which need its package (Python 3.12).

    harbor run -p tasks/ --agent coding_model_project.harbor.harbor_agents:SingleShot \\
        -m openai/NAME --ak api_base=http://localhost:8000/v1

For the oracle, use Harbor's own: `--agent oracle`.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, override

from harbor.agents.base import BaseAgent
from harbor.environments.base import BaseEnvironment
from harbor.llms.lite_llm import LiteLLM
from harbor.models.agent.context import AgentContext

from coding_model_project.errors import ConfigError
from coding_model_project.grading.extract import extract

_ASKS = {
    "bash": "Answer with one script in a ```bash block. It runs once in the working directory, and you "
    "do not see what comes of it.",
    "python": "Answer with one program in a ```python block. It becomes the file {path}.",
}


class SingleShot(BaseAgent):
    """An agent that queries a model once and runs its script or writes its program.

    If the reply has no code block, the agent does nothing.

    Args:
        language: bash runs the reply's script; python writes its program to `path`.
        path: the program's path, relative to the working directory.
        api_base: URL of the server; default: the model's own.
    """

    def __init__(
        self,
        *given: Any,
        language: str = "bash",
        path: str = "solution.py",
        temperature: float | None = None,
        api_base: str | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*given, **more)
        if language not in _ASKS:
            raise ConfigError(f"--ak language={language}: choose one of {', '.join(_ASKS)}")
        if self.model_name is None:
            raise ConfigError("--model is missing; a single-shot agent needs one: -m openai/NAME")
        self._language, self._path = language, path
        self._model = LiteLLM(self.model_name, temperature=temperature, api_base=api_base)

    @staticmethod
    @override
    def name() -> str:
        return "single-shot"

    @override
    def version(self) -> str:
        return "1"

    @override
    async def setup(self, environment: BaseEnvironment) -> None:
        """Do nothing: this agent needs no set-up."""

    @override
    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        """Query the model, and run or write its code.

        Raises:
            ContextLengthExceededError, OutputLengthExceededError: Harbor's errors of the model.
        """
        asks = _ASKS[self._language].format(path=self._path)
        answer = await self._model.call(f"{instruction.strip()}\n\n{asks}")
        (self.logs_dir / "reply.md").write_text(answer.content)
        if answer.usage is not None:
            context.n_input_tokens = answer.usage.prompt_tokens
            context.n_cache_tokens = answer.usage.cache_tokens
            context.n_output_tokens = answer.usage.completion_tokens
            context.cost_usd = answer.usage.cost_usd
        code = extract(answer.content, language=self._language).code
        if code is None:
            self.logger.info("the reply has no %s block", self._language)
        elif self._language == "bash":
            ended = await environment.exec(code)
            (self.logs_dir / "output.txt").write_text((ended.stdout or "") + (ended.stderr or ""))
        else:
            await self._write(code, environment)

    async def _write(self, code: str, environment: BaseEnvironment) -> None:
        written = self.logs_dir / PurePosixPath(self._path).name
        written.write_text(code)
        where = (await environment.exec("pwd")).stdout or "/"
        await environment.upload_file(written, str(PurePosixPath(where.strip(), self._path)))
