"""GRPO on rewards from executed code, with verl's own trainer.

    python -m recipes.grpo [key=value ...]

Without arguments, on a machine without an accelerator, this prepares the embedded task set and a tiny
starting model if they are missing, and trains on two CPU cores. Run it again to resume.

    coding.reward.kind=dense               reward the share of hidden tests that pass
    coding.seed=2                          use another seed for data order, sampling and training
    hardware=gpu_1x                        use Qwen2.5-Coder-1.5B-Instruct on one GPU
    trainer.total_training_steps=100       override any key of verl's tree
    actor_rollout_ref.model.path=MODEL     start from another model
    experiment=stable                      use a preset for long runs, or dapo, golf, gspo, lora, mixed
    coding.training.sampler=online         prefer problems whose groups disagree
    --cfg job                              print the whole configuration
    -m experiment=dense,sparse coding.seed=1,2   run each combination, below coding.run_dir

Every `coding:` key and preset: docs/configuration.md.
Results: outputs/grpo/{config.yaml, metrics.jsonl, tensorboard/, checkpoints/}.
"""

from coding_model_project.launch.recipe import Recipe, run_recipe


def train(config):
    from coding_model_project.verl_ext.trainers import grpo

    grpo.train(config)


RECIPE = Recipe(name="grpo", model_key="actor_rollout_ref.model.path", train=train)

if __name__ == "__main__":
    run_recipe(RECIPE, __doc__ or "")
