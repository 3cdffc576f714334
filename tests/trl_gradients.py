"""TRL's DPO on a batch of padded pairs: losses, rewards and the gradients of all weights.

    PYTHONPATH=.venv/opt/trl python tests/trl_gradients.py BATCH.pt OUT.pt

A program of its own, because verl takes another path where it can import trl. TRL has no cDPO. With
S(Δ) its sigmoid loss, its `robust` loss is R = ((1 - ε) S(Δ) - ε S(-Δ)) / (1 - 2ε), so that cDPO,
(1 - ε) S(Δ) + ε S(-Δ), is 2 (1 - ε) S - (1 - 2ε) R: TRL weighs losses.
"""

import sys
import tempfile

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference


def losses(smoothing):
    return {
        "sigmoid": (["sigmoid"], None),
        "ipo": (["ipo"], None),
        "cdpo": (["sigmoid", "robust"], [2 * (1 - smoothing), -(1 - 2 * smoothing)]),
    }


def main(given, out):
    batch = torch.load(given)
    tokenizer = AutoTokenizer.from_pretrained(batch["policy"])
    reference = AutoModelForCausalLM.from_pretrained(batch["reference"], dtype=torch.float32)
    unused = Dataset.from_list([{"prompt": "a", "chosen": "b", "rejected": "c"}])
    inputs = DataCollatorForPreference(pad_token_id=tokenizer.pad_token_id)(batch["pairs"])
    results = {}
    for name, (kinds, weights) in losses(batch["label_smoothing"]).items():
        policy = AutoModelForCausalLM.from_pretrained(batch["policy"], dtype=torch.float32)
        with tempfile.TemporaryDirectory() as folder:
            config = DPOConfig(
                output_dir=folder, loss_type=kinds, loss_weights=weights, beta=batch["beta"],
                label_smoothing=batch["label_smoothing"], max_length=None, use_cpu=True, bf16=False,
                gradient_checkpointing=False, report_to=[], disable_dropout=True,
            )  # fmt: skip
            trainer = DPOTrainer(
                policy, reference, args=config, train_dataset=unused, processing_class=tokenizer
            )
        policy.train()  # it has no dropout; TRL keeps its metrics by this
        loss = trainer.compute_loss(policy, inputs)
        loss.backward()
        metrics = trainer._metrics["train"]
        results[name] = {
            "loss": loss.item(),
            "gradients": {key: value.grad for key, value in policy.named_parameters()},
            "rewards_chosen": metrics["rewards/chosen"][-1],
            "rewards_rejected": metrics["rewards/rejected"][-1],
            "margin": metrics["rewards/margins"][-1],
            "accuracy": metrics["rewards/accuracies"][-1],
        }
    torch.save(results, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
