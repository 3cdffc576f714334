"""A real model, trained for a step and exported: its files, and its greedy tokens in two programs."""

import json
import subprocess
import sys

import pytest

from tests.exports import check_is_start
from tests.real_model import Unavailable, model_folder

pytestmark = [pytest.mark.soak, pytest.mark.e2e, pytest.mark.verl, pytest.mark.timeout(900)]

N_TOKENS = 40
PROMPTS = ("Write a Python function that adds two numbers.", "What is the capital of France?")

_IN_VLLM = f"""
import json, pathlib, sys
from vllm import LLM, SamplingParams
small = {{"max_model_len": 512, "max_num_seqs": 2, "kv_cache_memory_bytes": 1 << 28}}
llm = LLM(sys.argv[1], dtype="float32", enforce_eager=True, **small)
conversations = [[{{"role": "user", "content": prompt}}] for prompt in {PROMPTS!r}]
answers = llm.chat(conversations, SamplingParams(temperature=0, max_tokens={N_TOKENS}))
tokens = [list(answer.outputs[0].token_ids) for answer in answers]
pathlib.Path(sys.argv[2]).write_text(json.dumps(tokens))
"""


def tokens_in_transformers(model):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    loaded = AutoModelForCausalLM.from_pretrained(model)
    assert loaded.dtype == torch.float32

    def answer(prompt):
        message = [{"role": "user", "content": prompt}]
        given = tokenizer.apply_chat_template(
            message, add_generation_prompt=True, return_dict=True, return_tensors="pt"
        )
        made = loaded.generate(**given, do_sample=False, max_new_tokens=N_TOKENS)
        return made[0, given["input_ids"].shape[1] :].tolist()

    return [answer(prompt) for prompt in PROMPTS]


def test_a_trained_real_model_answers_alike_in_transformers_and_vllm(world, tmp_path):
    try:
        start = model_folder()
    except Unavailable as error:
        pytest.skip(str(error))
    run = tmp_path / "sft"
    overrides = [*world.overrides(run, "sft"), f"model.path={start}", "data.max_length=512"]
    steps = ["trainer.total_training_steps=1", "trainer.save_freq=1", "optim.lr=1e-5"]
    subprocess.run([sys.executable, "-m", "recipes.sft", *overrides, *steps], check=True)
    subprocess.run([sys.executable, "-m", "coding_model_project", "export", run], check=True)
    export = run / "exports" / "global_step_1"
    check_is_start(run / "checkpoints" / "global_step_1" / "huggingface", start)
    check_is_start(export, start)

    ours = tokens_in_transformers(export)
    answers = tmp_path / "answers.json"
    subprocess.run([sys.executable, "-c", _IN_VLLM, export, answers], check=True)
    assert ours == json.loads(answers.read_text())
    assert len(ours[0]) == N_TOKENS
    assert ours[1][-1] == 2, "the end of an answer"
    weights = [(model / "model.safetensors").read_bytes() for model in (start, export)]
    assert weights[0] != weights[1]
