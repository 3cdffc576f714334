"""The OpenAI back end against a real server that misbehaves as servers do."""

import pytest

from coding_model_project.errors import ConfigError, GenerationError, PromptError
from coding_model_project.evaluation.generation import Completion, Sampling
from coding_model_project.evaluation.openai_backend import OpenAIBackend
from tests.completion_server import CompletionServer, serving

ASK = [{"role": "user", "content": "one two"}]
SAMPLING = Sampling(temperature=0.5, max_tokens=7)


async def complete(server, **options):
    with serving(server):
        async with OpenAIBackend(server.url, "toy", **options) as backend:
            return await backend.complete(ASK, SAMPLING, seed=5)


async def test_asks_for_what_the_protocol_says():
    server = CompletionServer(lambda prompt, seed: f"{prompt} {seed}")
    assert await complete(server) == Completion(text="one two 5", n_tokens=3, n_prompt_tokens=2)
    (asked,) = server.asked
    assert asked["messages"] == ASK
    assert (asked["max_tokens"], asked["temperature"], asked["seed"]) == (7, 0.5, 5)
    await complete(server, send_seeds=False)
    assert "seed" not in server.asked[-1]


@pytest.mark.parametrize("fault", ["429", "500", "cut", "half", "hang"])
async def test_what_passes_is_tried_again(fault):
    server = CompletionServer(lambda *_: "done", faults=[fault])
    completion = await complete(server, timeout_s=1.0)
    assert completion.text == "done"
    assert len(server.asked) == 2


async def test_an_outage_is_an_error_and_never_an_empty_completion():
    server = CompletionServer(lambda *_: "", faults=["500"] * 50)
    with pytest.raises(GenerationError, match="HTTP 500"):
        await complete(server, retry_s=0.3)
    assert await complete(CompletionServer(lambda *_: "")) == Completion(
        text="", n_tokens=0, n_prompt_tokens=2
    )


async def test_nobody_there():
    with pytest.raises(GenerationError, match="tried for"):
        async with OpenAIBackend("http://127.0.0.1:9/v1", "toy", retry_s=0.2):
            pass


async def test_a_refused_prompt_concerns_that_prompt_alone():
    with pytest.raises(PromptError, match="HTTP 400"):
        await complete(CompletionServer(lambda *_: "", faults=["400"]))


async def test_a_model_that_is_not_served_is_named_with_those_that_are():
    with (
        serving(CompletionServer(lambda *_: "")) as server,
        pytest.raises(ConfigError, match="does not serve other; it serves toy"),
    ):
        async with OpenAIBackend(server.url, "other"):
            pass
    with pytest.raises(ConfigError, match="http://localhost:8000/v1"):
        OpenAIBackend("localhost:8000", "toy")
