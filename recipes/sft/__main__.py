"""SFT on verified demonstrations, with verl's own trainer.

    python -m recipes.sft [key=value ...]

Without arguments, on a machine without an accelerator, this prepares the embedded task set and a tiny
starting model if they are missing, and trains on the demonstrations of the easy levels. Run it again
to resume.

    model.path=MODEL                       start from another model
    data.train_files=FILE.parquet          train on rows with `messages` (and `data_source`)
    optim.lr=1e-4                          override any key of verl's tree
    coding.seed=2                          use another seed for data order and training
    hardware=gpu_1x                        use Qwen2.5-Coder-1.5B-Instruct on one GPU
    --cfg job                              print the whole configuration
    -m coding.seed=1,2                     run each seed

Every `coding:` key: docs/configuration.md (its presets, experiment=NAME, are for recipes.grpo).
Results: outputs/sft/{config.yaml, metrics.jsonl, tensorboard/, checkpoints/}.
"""

from coding_model_project.launch.recipe import Recipe, run_recipe


def train(config):
    from coding_model_project.verl_ext.trainers import sft

    sft.train_sft(config)


RECIPE = Recipe(name="sft", model_key="model.path", train=train)

if __name__ == "__main__":
    run_recipe(RECIPE, __doc__ or "")
