"""The reference solution of the tiny task: fine-tunes the base model on the training problems.

Plain PyTorch. Part of a task as solution/train.py, where nothing of this package is needed.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

BATCH, LEARNING_RATE, WARMUP = 48, 1e-3, 20


def main() -> None:
    """Train and save. Arguments: base model, problems, out, number of steps."""
    import torch
    from torch.nn.functional import cross_entropy
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base, problems, out = map(Path, sys.argv[1:4])
    steps = int(sys.argv[4])
    random.seed(0)
    torch.manual_seed(0)
    tokenizer: Any = AutoTokenizer.from_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    examples = []
    for line in problems.read_text().splitlines():
        problem = json.loads(line)
        if not problem.get("gold"):
            continue
        asked = [{"role": "user", "content": problem["statement"]}]
        prompt = tokenizer.apply_chat_template(
            asked, tokenize=True, add_generation_prompt=True, return_dict=False
        )
        answer = tokenizer(problem["gold"][0], add_special_tokens=False)["input_ids"]
        examples.append((prompt, [*answer, tokenizer.eos_token_id]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    model.train()
    for step in range(steps):
        batch = random.sample(examples, min(BATCH, len(examples)))
        length = max(len(prompt) + len(answer) for prompt, answer in batch)
        tokens = torch.zeros(len(batch), length, dtype=torch.long)
        labels = torch.full((len(batch), length), -100)
        for row, (prompt, answer) in enumerate(batch):
            whole = torch.tensor(prompt + answer)
            tokens[row, : len(whole)] = whole
            labels[row, len(prompt) : len(whole)] = torch.tensor(answer)
        rate = min(1.0, (step + 1) / WARMUP) * (1 - step / steps)
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * rate
        # Padding lies to the right of all that is trained on, so causal attention needs no mask.
        logits = model(input_ids=tokens).logits[:, :-1]
        loss = cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f"step {step} of {steps}: loss {loss.item():.3f}", flush=True)  # noqa: T201
    model.save_pretrained(out, safe_serialization=True)
    tokenizer.save_pretrained(out)


if __name__ == "__main__":
    main()
