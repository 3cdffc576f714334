"""Run five training phases in sequence on one machine, and measure the gain of each.

    python -m recipes.pipeline [key=value ...]        (`make pipeline` also sets up the environment)

baseline → SFT on the model's own accepted programs → DPO on pairs of an accepted and a failing program →
GRPO on rewards from running programs → GRPO with repair rounds. Each phase starts from the previous
phase's model, and all models are evaluated on the same held-out problems by the same protocol. Without
arguments: embedded tasks, a tiny model, two CPU cores.

    phases=[baseline,sft,grpo]             run some of the phases, in this order
    base_model=MODEL                       start from another model
    coding.seed=2                          use another seed for data, sampling and training
    grpo.steps=50 'grpo.overrides=["coding.reward.kind=dense"]'   override any key of a phase's recipe
    coding.sandbox.workers=4               set a key of `coding:` in every phase
    hardware=gpu_1x                        use Qwen2.5-Coder-1.5B-Instruct on one GPU
    --cfg job                              print the whole configuration

A step runs again only if its inputs or settings change; run the command again to resume or to print the
table again. Results: outputs/pipeline/{summary.json, report.html, PHASE/STEP-HASH/}.
"""

from coding_model_project.launch.recipe import run_main


def carry_out(config, _command, _repeats):
    from coding_model_project.launch.pipeline import pipeline

    pipeline.main(config)


if __name__ == "__main__":
    run_main("pipeline", __doc__ or "", carry_out)
