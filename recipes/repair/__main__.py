"""GRPO with repair: if a program fails a public test, the model sees that test and answers again.

    python -m recipes.repair [key=value ...]

verl's own trainer, as in recipes.grpo, on episodes of several attempts. The model sees only its verdict
on the public tests; only the hidden tests give the reward. Run it again to resume.

    coding.repair.rounds=1                 allow at most one repair; 0 is plain GRPO
    coding.repair.reward=best              reward the best attempt instead of the last ...
    coding.repair.discount=0.8             ... multiplied by 0.8 for each repair
    coding.repair.observation_bytes=300    limit the bytes of a test and its outcome that the model sees
    actor_rollout_ref.model.path=MODEL     start from another model, such as one that has seen repairs
    hardware=gpu_1x                        use Qwen2.5-Coder-1.5B-Instruct on one GPU
    experiment=quick                       use one of recipes.grpo's presets
    -m coding.repair.rounds=0,1,2          run each number of rounds

Observations and endings of an episode: docs/repair.md. Every `coding:` key: docs/configuration.md.
Results: outputs/repair/{config.yaml, metrics.jsonl, rollouts.jsonl, checkpoints/}.
"""

from coding_model_project.launch.recipe import Recipe, run_recipe


def train(config):
    from coding_model_project.verl_ext.trainers import grpo

    grpo.train(config)


RECIPE = Recipe(name="repair", model_key="actor_rollout_ref.model.path", train=train)

if __name__ == "__main__":
    run_recipe(RECIPE, __doc__ or "")
