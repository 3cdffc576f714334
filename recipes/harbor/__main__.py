"""GRPO on Harbor tasks: the model works in a shell, one command per turn, and the verifier rewards it.

    python -m recipes.harbor [key=value ...]

Without arguments, on a machine without an accelerator: generates tasks of one or two commands (tinyshell)
and a tiny model that knows the form and has bad habits, trains it in rooms of this machine's namespaces,
and says what that gained on the held-out tasks. Run it again to resume.

    coding.bash.calls=tools                commands as calls of a tool, not in code blocks
    coding.bash.turns=5                    at most so many commands per episode
    coding.bash.reply_tokens=64            longest reply
    coding.bash.command_s=30               longest command
    coding.bash.rooms=32                   episodes at once
    coding.reward.kind=dense               the verifier's reward as it is; sparse: 1 from 1.0 on
    coding.dataset=null coding.problems=[tasks.jsonl] data.train_files=ROWS data.val_files=ROWS
                                           your own tasks
    coding.agent.command="python my_agent.py"
                                           any agent that speaks OpenAI's API (docs/harbor-agents.md)
    hardware=gpu_1x                        Qwen2.5-Coder-1.5B-Instruct on one GPU

What an episode is and what ends it: docs/harbor.md. Every `coding:` key: docs/configuration.md.
Results: outputs/harbor/{config.yaml, metrics.jsonl, rollouts.jsonl, gain.json, checkpoints/}.
"""

from coding_model_project.launch.recipe import Recipe, run_recipe


def train(config):  # type: ignore[no-untyped-def]
    from coding_model_project.evaluation.gain import say_gain
    from coding_model_project.verl_ext.trainers import grpo

    grpo.train(config)
    say_gain(config.coding.run_dir, print)


RECIPE = Recipe(name="harbor", model_key="actor_rollout_ref.model.path", train=train)

if __name__ == "__main__":
    run_recipe(RECIPE, __doc__ or "")
