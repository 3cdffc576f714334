"""The OpenAI back end against a real server that misbehaves as servers do."""

import re

import pytest

from coding_model_project.errors import ConfigError, FilteredError, GenerationError, PromptError
from coding_model_project.evaluation.backends.generation import Completion, Sampling
from coding_model_project.evaluation.backends.openai_backend import OpenAIBackend, _completion
from coding_model_project.evaluation.evaluation_config import EvaluationConfig
from tests.completion_server import CompletionServer, serving
from tests.tables import tables

CASES = tables("evaluation")

pytestmark = pytest.mark.slow

ASK = [{"role": "user", "content": "one two"}]
SAMPLING = Sampling(temperature=0.5, max_tokens=7)


async def complete(server, **options):
    with serving(server):
        async with OpenAIBackend(
            EvaluationConfig(base_url=server.url, model="toy", **options)
        ) as backend:
            return await backend.complete(ASK, SAMPLING, seed=5)


async def test_asks_for_what_the_protocol_says():
    server = CompletionServer(lambda prompt, seed: f"{prompt} {seed}")
    assert await complete(server) == Completion(text="one two 5", n_tokens=3, n_prompt_tokens=2)
    (asked,) = server.asked
    assert asked["messages"] == ASK
    assert (asked["max_tokens"], asked["temperature"], asked["seed"]) == (7, 0.5, 5)
    await complete(server, send_seeds=False)
    assert "seed" not in server.asked[-1]


@pytest.mark.parametrize("fault", ["429", "500", "cut", "half", "error", "abort", "hang"])
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


async def test_a_refused_prompt_concerns_that_prompt_alone():
    with pytest.raises(PromptError, match="HTTP 400"):
        await complete(CompletionServer(lambda *_: "", faults=["400"]))


@pytest.mark.parametrize("fault", ["content_filter", "filtered"])
async def test_a_content_filter_gives_no_answer_to_judge(fault):
    with pytest.raises(FilteredError, match="content filter"):
        await complete(CompletionServer(lambda *_: "done", faults=[fault]))


def test_content_may_be_a_list_of_parts():
    thought = [{"type": "thinking", "thinking": [{"type": "text", "text": "Add."}]}]
    for content, text, reasoning in (
        ([*thought, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab", "Add."),
        ([{"type": "reasoning", "summary": "Add."}, "a"], "a", "Add."),
        (["a", "b"], "ab", ""),
        ("a", "a", ""),
        (None, "", ""),
    ):
        choice = {"message": {"content": content}, "finish_reason": "stop"}
        made = _completion({"choices": [choice], "usage": {"completion_tokens": 3}})
        assert (made.text, made.reasoning) == (text, reasoning)


async def test_a_model_that_is_not_served_is_named_with_those_that_are():
    with (
        serving(CompletionServer(lambda *_: "")) as server,
        pytest.raises(ConfigError, match="does not serve other; it serves toy"),
    ):
        async with OpenAIBackend(EvaluationConfig(base_url=server.url, model="other")):
            pass
    with pytest.raises(ConfigError, match="http://localhost:8000/v1"):
        OpenAIBackend(EvaluationConfig(base_url="localhost:8000", model="toy"))


async def test_a_request_has_what_hosted_models_want():
    server = CompletionServer(lambda *_: "done", key="secret")
    extra = {"reasoning_effort": "low", "temperature": None}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MY_KEY", "secret")
        options = {"token_limit_field": "max_completion_tokens", "api_key_env": "MY_KEY"}
        await complete(server, extra_body=extra, **options)
    (asked,) = server.asked
    assert asked["max_completion_tokens"] == 7
    assert asked["reasoning_effort"] == "low"
    assert not {"max_tokens", "temperature"} & set(asked)


@pytest.mark.parametrize(("options", "says"), CASES["settings"])
def test_settings_that_cannot_work_are_refused_before_anything_is_sent(options, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        OpenAIBackend(EvaluationConfig(base_url="http://localhost:8000/v1", model="toy", **options))


@pytest.mark.parametrize(("field", "error", "says"), CASES["refused field"])
async def test_a_refused_field_is_named_with_the_way_out(field, error, says):
    server = CompletionServer(lambda *_: "", refuses={field: {"error": error}})
    with pytest.raises(ConfigError, match=re.escape(says)) as caught:
        await complete(server, extra_body={"top_n": 3})
    assert f"rejects `{field}` (HTTP 400: " in str(caught.value)
    assert len(server.asked) == 1


async def test_a_refused_field_in_fastapis_form():
    extra = {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "not permitted"}
    with pytest.raises(ConfigError, match=r"rejects `seed` .*--no-send-seeds"):
        await complete(CompletionServer(lambda *_: "", refuses={"seed": {"detail": [extra]}}))


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8 tokens. However, your request has 9 input tokens.",
        "'max_tokens' is too large: 7. This model's maximum context length is 8 tokens and your "
        "request has 2 input tokens. (parameter=max_tokens, value=7)",
    ],
)
async def test_a_context_that_is_too_long_concerns_that_prompt_alone(message):
    error = {"error": {"message": message, "param": "max_tokens", "code": 400}}
    with pytest.raises(PromptError, match="context length"):
        await complete(CompletionServer(lambda *_: "", refuses={"seed": error}))


_TOO_LONG = {
    "llama.cpp": (400, {"error": {"code": 400, "type": "exceed_context_size_error",
                                  "message": "request (812 tokens) exceeds it, try increasing it"}}),
    "llama.cpp, an older one": (500, {"error": {"code": 500, "type": "exceed_context_size_error",
                                                "message": "try to enable context shift"}}),
    "LM Studio": (200, {"error": "The number of tokens to keep from the initial prompt is greater "
                                 "than the context length (n_keep: 13>= n_ctx: 8)."}),
    "SGLang": (400, {"object": "error", "code": 400, "param": None, "type": "BadRequestError",
                     "message": "The input (9 tokens) is longer than the model's context length"}),
    "TGI": (422, {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8. "
                           "Given: 2 `inputs` tokens and 7 `max_new_tokens`",
                  "error_type": "validation"}),
    "max_tokens": (400, {"error": {"message": "tokens + max_tokens must be at most 8"}}),
}  # fmt: skip


@pytest.mark.parametrize(("status", "body"), _TOO_LONG.values(), ids=_TOO_LONG)
async def test_each_server_says_in_its_own_way_that_a_prompt_is_too_long(status, body):
    server = CompletionServer(lambda *_: "", faults=[{"status": status, "body": body}])
    with pytest.raises(PromptError):
        await complete(server)
    assert len(server.asked) == 1


@pytest.mark.parametrize("error", [{"message": "Provider returned error", "code": 502}, "unloaded"])
async def test_an_error_with_http_200_is_tried_again(error):
    server = CompletionServer(lambda *_: "done", faults=[{"status": 200, "body": {"error": error}}])
    assert (await complete(server)).text == "done"
    assert len(server.asked) == 2


async def test_a_server_that_streams_unasked_is_no_outage():
    server = CompletionServer(
        lambda *_: "", faults=[{"status": 200, "body": 'data: {"choices": []}'}]
    )
    with pytest.raises(ConfigError, match="streams"):
        await complete(server)


async def test_a_bound_of_a_field_is_no_matter_of_the_prompt():
    error = {"error": "Input validation error: `top_p` must be > 0.0 and < 1.0"}
    with pytest.raises(ConfigError, match=r"rejects `top_p` .*--extra-body '\{\"top_p\": null\}'"):
        await complete(CompletionServer(lambda *_: "", refuses={"top_p": error}))


@pytest.mark.parametrize("listed", ["toy:latest", "org/*", "org/toy"])
async def test_a_list_of_models_covers_routers_proxies_and_tags(listed):
    name = {"toy:latest": "toy", "org/*": "org/toy", "org/toy": "org/toy:nitro"}[listed]
    with serving(CompletionServer(lambda *_: "", names=(listed,))) as server:
        async with OpenAIBackend(EvaluationConfig(base_url=server.url, model=name)):
            pass
        with pytest.raises(ConfigError, match=f"it serves {re.escape(listed)}"):
            async with OpenAIBackend(EvaluationConfig(base_url=server.url, model="toy:8b")):
                pass


async def test_a_key_is_asked_for_and_a_wrong_one_is_said_to_be_wrong(monkeypatch):
    server = CompletionServer(lambda *_: "", key="secret")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ConfigError, match=r"HTTP 401.*Incorrect.*set .* OPENAI_API_KEY"):
        await complete(server)
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    with pytest.raises(ConfigError, match=r"does not accept the key .* OPENAI_API_KEY"):
        await complete(server)


async def test_a_model_that_a_server_without_a_list_does_not_know():
    with (
        serving(CompletionServer(lambda *_: "", lists=False)) as server,
        pytest.raises(ConfigError, match=r"does not serve other; HTTP 404.*--model"),
    ):
        async with OpenAIBackend(EvaluationConfig(base_url=server.url, model="other")) as backend:
            await backend.complete(ASK, SAMPLING, seed=5)
    assert (await complete(CompletionServer(lambda *_: "done", lists=False))).text == "done"


@pytest.mark.parametrize("page", [False, True, "Unexpected endpoint or method. (GET /models)"])
async def test_an_address_without_v1_is_corrected(page):
    with serving(CompletionServer(lambda *_: "", page=page)) as server:
        short = server.url.removesuffix("/v1")
        with pytest.raises(ConfigError, match=f"API is at {server.url}; use that"):
            async with OpenAIBackend(EvaluationConfig(base_url=short, model="toy")):
                pass
        with pytest.raises(ConfigError, match=f"up to the version: {server.url}$"):
            OpenAIBackend(EvaluationConfig(base_url=f"{server.url}/chat/completions", model="toy"))


@pytest.mark.parametrize("page", [False, True])
async def test_an_address_without_an_api_is_said_to_have_none(page):
    with (
        serving(CompletionServer(lambda *_: "", page=page)) as server,
        pytest.raises(ConfigError, match="ends in /v1"),
    ):
        async with OpenAIBackend(
            EvaluationConfig(base_url=f"{server.url.removesuffix('/v1')}/elsewhere", model="toy")
        ) as backend:
            await backend.complete(ASK, SAMPLING, seed=5)


async def test_an_outage_is_announced_once_with_its_reason_and_its_end(capsys, caplog):
    server = CompletionServer(lambda *_: "done", faults=["429"] * 3)
    await complete(server, retry_s=60.0)
    down, back = capsys.readouterr().err.splitlines()
    assert f"{server.url} does not answer (HTTP 429: busy)" in down
    assert f"{server.url} is back" in back
    assert "stamina" not in caplog.text


async def test_a_password_in_the_url_is_never_printed(capsys):
    backend = OpenAIBackend(
        EvaluationConfig(base_url="http://me:swordfish@127.0.0.1:9/v1", model="toy", retry_s=0.2)
    )
    with pytest.raises(GenerationError) as refused:
        async with backend:
            pass
    said = f"{backend.identity}\n{refused.value}\n{capsys.readouterr().err}"
    assert "http://me:***@127.0.0.1:9/v1" in said
    assert "swordfish" not in said
