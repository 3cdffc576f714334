"""Five phases on one machine, each one's model the next one's start: does each of them help?

    python -m recipes.pipeline [key=value ...]        (`make pipeline` sets the environment up first)

baseline → SFT on what the model's own programs got right → DPO on pairs of a right and a wrong one →
GRPO on rewards from running them → GRPO with repair rounds. Each phase's model is evaluated on the same
held-out problems by the same protocol. Without arguments: embedded tasks, a tiny model, two CPU cores.

    phases=[baseline,sft,grpo]             some of them, in this order
    base_model=MODEL                       start from another model
    coding.seed=2                          another seed for data, sampling and training
    grpo.steps=50 'grpo.overrides=["coding.reward.kind=dense"]'   any key of a phase's own recipe
    coding.sandbox.workers=4               keys of `coding:` reach every phase
    hardware=gpu_1x                        Qwen2.5-Coder-1.5B-Instruct on one GPU
    --cfg job                              print the whole configuration

A step is done once for each content of what it reads and each setting; run the command again to resume or
to see the table again. Results: outputs/pipeline/{summary.json, report.html, PHASE/STEP-HASH/}.
"""

from coding_model_project.launch.recipe import run_main


def carry_out(config, _command, _repeats):  # type: ignore[no-untyped-def]
    from coding_model_project.launch.pipeline import pipeline

    pipeline.main(config)


if __name__ == "__main__":
    run_main("pipeline", __doc__ or "", carry_out)
