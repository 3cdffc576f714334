"""DPO on pairs of an accepted and a failing program for the same problem.

    python -m coding_model_project data pairs EVALUATION --problems P.jsonl --out pairs.parquet
    python -m recipes.dpo data.train_files=pairs.parquet [key=value ...]

The pairs come from an evaluation of *training* problems (recipes.baseline, docs/dpo.md). DPO runs on
verl's own SFT trainer and engines: FSDP2 over ranks, LoRA by verl's keys. Run it again to resume.

    model.path=MODEL                       start from another model, which is also the reference
    data.val_files=pairs_validation.parquet
                                           validate on these pairs
    coding.dpo.beta=0.3                    keep the model closer to the reference
    coding.dpo.loss=ipo                    sigmoid, ipo or cdpo (with coding.dpo.label_smoothing=0.1)
    data.train_batch_size=64               set the batch size in pairs, like micro_batch_size_per_gpu
    model.lora_rank=32                     train an adapter
    hardware=gpu_1x                        use Qwen2.5-Coder-1.5B-Instruct on one GPU
    --cfg job                              print the whole configuration

Logged for each step: dpo/loss, dpo/rewards_chosen, dpo/rewards_rejected, dpo/margin, dpo/accuracy, and
val/dpo/... at validation. Every `coding:` key: docs/configuration.md.
Results: outputs/dpo/{config.yaml, metrics.jsonl, tensorboard/, checkpoints/}.
"""

from coding_model_project.launch.recipe import MAKE_PAIRS, Recipe, run_recipe


def train(config):
    from coding_model_project.verl_ext.trainers import sft

    sft.train_dpo(config)


RECIPE = Recipe(name="dpo", model_key="model.path", train=train, make_data=MAKE_PAIRS)

if __name__ == "__main__":
    run_recipe(RECIPE, __doc__ or "")
