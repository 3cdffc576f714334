"""GRPO on Harbor tasks: the model works in a shell, one command per turn, and the verifier rewards it.

    python -m recipes.harbor [key=value ...]

Without arguments, on a machine without an accelerator, this generates tasks of one or two commands
(tinyshell) and a tiny model that knows the format and has bad habits. It trains the model in rooms of
this machine's namespaces, and prints the gain on the held-out tasks. Run it again to resume.

    coding.bash.calls=tools                take commands as tool calls, not in code blocks
    coding.bash.turns=5                    limit the commands per episode
    coding.bash.reply_tokens=64            limit the tokens of a reply
    coding.bash.command_s=30               limit the seconds of a command
    coding.bash.rooms=32                   limit the episodes at once
    coding.reward.kind=dense               use the verifier's reward; sparse: 1 if it is at least 1.0
    coding.dataset=null coding.problems=[tasks.jsonl] data.train_files=ROWS data.val_files=ROWS
                                           train on your own tasks
    coding.agent.command="python my_agent.py"
                                           train any agent that calls OpenAI's API (docs/harbor-agents.md)
    hardware=gpu_1x                        use Qwen2.5-Coder-1.5B-Instruct on one GPU

Episodes and their endings: docs/bash-agent.md. Every `coding:` key: docs/configuration.md.
Results: outputs/harbor/{config.yaml, metrics.jsonl, rollouts.jsonl, gain.json, checkpoints/}.
"""

from coding_model_project.launch.recipe import Recipe, run_recipe


def train(config):
    from coding_model_project.evaluation.gain import say_gain
    from coding_model_project.verl_ext.trainers import grpo

    grpo.train(config)
    say_gain(config.coding.run_dir, print)


RECIPE = Recipe(name="harbor", model_key="actor_rollout_ref.model.path", train=train)

if __name__ == "__main__":
    run_recipe(RECIPE, __doc__ or "")
