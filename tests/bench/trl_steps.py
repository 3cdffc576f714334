"""GRPO steps of TRL's own trainer on tinycode, for `tests.bench.training`: prints each step's seconds.

    PYTHONPATH=.venv/opt/trl python tests/bench/trl_steps.py MODEL FOLDER STEPS \
        PROMPTS TOKENS AT_ONCE bare|fenced

A program of its own, because verl takes another path where it can import trl.
"""

import json
import sys
import time

from datasets import Dataset
from transformers import TrainerCallback, set_seed
from trl import GRPOConfig, GRPOTrainer

import coding_model_project as cmp
from coding_model_project.integrations.trl import CodeReward, rows

GENERATIONS = 8


class Clock(TrainerCallback):
    """A callback that prints the wall seconds of each step."""

    def on_step_begin(self, *_args, **_kwargs):
        self.began = time.monotonic()

    def on_step_end(self, *_args, **_kwargs):
        print(json.dumps({"step_s": time.monotonic() - self.began}), flush=True)


def main(model, folder, steps, prompts, tokens, at_once, style):
    set_seed(1)
    prompts, tokens, at_once, bare = int(prompts), int(tokens), int(at_once), style == "bare"
    problems = cmp.load("tinycode", split="train")
    trainer = GRPOTrainer(
        model,
        reward_funcs=CodeReward(problems, kind="sparse", bare=bare),
        args=GRPOConfig(
            output_dir=folder, max_steps=int(steps), num_generations=GENERATIONS,
            per_device_train_batch_size=at_once,
            gradient_accumulation_steps=prompts * GENERATIONS // at_once,
            max_completion_length=tokens, learning_rate=2e-4, logging_steps=1, report_to=[],
            save_strategy="no", use_cpu=True, bf16=False, gradient_checkpointing=False,
            disable_tqdm=True, model_init_kwargs={"dtype": "float32"},
        ),
        train_dataset=Dataset.from_list(rows(problems, bare=bare)),
        callbacks=[Clock()],
    )  # fmt: skip
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
