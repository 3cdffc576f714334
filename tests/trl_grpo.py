"""GRPO steps of TRL's own trainer with `CodeReward`, on a tiny model; what it logged goes to a file.

    PYTHONPATH=.venv/opt/trl python tests/trl_grpo.py FOLDER

A program of its own, because verl takes another path where it can import trl. The model has seen a few
tinycode problems' right and wrong programs, so rewards differ. The sandbox fails on one program of the
second step. Then FOLDER/page.py runs: importing all this takes longer than training.
"""

import json
import os
import runpy
import sys
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
from trl import GRPOConfig, GRPOTrainer

import coding_model_project as cmp
from coding_model_project.grading.prompts import PromptStyle, solution_message, solve_messages
from coding_model_project.integrations.trl import CodeReward, rows
from coding_model_project.sandbox.embedded import EmbeddedSandbox
from coding_model_project.synthetic.tiny_model import TinyModelConfig, pretrain

STEPS, GENERATIONS = 2, 4
SMALL = TinyModelConfig(
    vocab_size=320, hidden_size=64, intermediate_size=128, layers=1, batch_size=16, steps=200,
    warmup_steps=10, learning_rate=1e-2,
)  # fmt: skip


class Corpus:
    """Right and wrong programs of a few problems."""

    def __init__(self, problems):
        self.conversations = [
            [*asked(one), solution_message(code, style=PromptStyle.bare)]
            for one in problems
            for code in (one.gold[0], one.bad[0])
        ]

    def texts(self, _):
        return (message["content"] for one in self.conversations for message in one)

    def draw(self, rng, n):
        return rng.choices(self.conversations, k=n)


class FailsOnce(EmbeddedSandbox):
    """The real sandbox, which cannot run one program after it was told so."""

    fail = False

    async def run(self, *args, **kwargs):
        if type(self).fail:
            type(self).fail = False
            raise cmp.SandboxError("the zygote was lost")
        return await super().run(*args, **kwargs)


def asked(problem):
    return solve_messages(problem, style=PromptStyle.bare)


def shortest(n):
    functions = [p for p in cmp.load("tinycode", split="train") if p.bad and p.entry_point]
    return sorted(functions, key=lambda p: len(p.gold[0]) + len(p.statement))[:n]


def main(folder):
    torch.set_num_threads(1)
    problems = shortest(4)
    pretrain(folder / "model", Corpus(problems), SMALL)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    given = []

    class Noted(CodeReward):
        def __call__(self, completions, **columns):
            FailsOnce.fail = len(given) == 1
            given.append(super().__call__(completions, **columns))
            return given[-1]

    set_seed(0)
    trainer = GRPOTrainer(
        model,
        reward_funcs=Noted(problems, bare=True, workers=2, sandbox=FailsOnce(workers=2)),
        args=GRPOConfig(
            output_dir=str(folder / "out"), max_steps=STEPS, num_generations=GENERATIONS,
            per_device_train_batch_size=2 * GENERATIONS, max_completion_length=64,
            learning_rate=1e-3, logging_steps=1, report_to=[], save_strategy="no", use_cpu=True,
            bf16=False, gradient_checkpointing=False, disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(rows(problems, bare=True)),
        processing_class=tokenizer,
    )  # fmt: skip
    advantages = []
    compute = trainer._generate_and_score_completions

    def noted(inputs):
        batch = compute(inputs)
        advantages.append(batch["advantages"].tolist())
        return batch

    trainer._generate_and_score_completions = noted
    trainer.train()
    results = {
        "given": given,
        "advantages": advantages,
        "log": trainer.state.log_history,
        "changed": any(not torch.equal(before[n], p) for n, p in model.named_parameters()),
        "finite": all(bool(p.isfinite().all()) for p in model.parameters()),
    }
    (folder / "results.json").write_text(json.dumps(results))
    if (page := folder / "page.py").exists():
        os.chdir(folder)
        runpy.run_path(str(page))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
