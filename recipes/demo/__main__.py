"""Train a tiny language model from scratch and improve it measurably with GRPO, on two CPU cores.

    python -m recipes.demo [key=value ...]            (`make demo` also sets up the environment)

baseline: a tiny model pre-trained from scratch on programs with common mistakes
sft: SFT on a few verified demonstrations of the easy levels
sft_continued: as many steps of SFT again, the control
grpo: verl's own trainer from the SFT model, rewarded by running its programs

It is the pipeline with these phases, and takes its keys (`python -m recipes.pipeline --help`). Finished
steps are skipped; delete outputs/demo to start over. Results: outputs/demo/{summary.json, report.html,
model/}. Exit code 1 unless sft beats baseline, and grpo sft_continued, with p < 0.01.
"""

from coding_model_project.launch.recipe import run_main


def carry_out(config, _command, _repeats):
    from coding_model_project.launch.pipeline import pipeline

    pipeline.main(config)


if __name__ == "__main__":
    run_main("demo", __doc__ or "", carry_out)
