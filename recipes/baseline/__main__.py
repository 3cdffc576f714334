"""Evaluate a model by running the programs that it writes, with confidence intervals (Phase 0).

    python -m recipes.baseline [key=value ...]

Without arguments, on a machine without an accelerator, this creates the tiny base model if it is missing
and evaluates it greedily on the embedded task set's test split. Run it again to resume.

    coding.evaluation.model=MODEL                     evaluate another model: a folder or a hub name
    coding.evaluation.datasets=[humaneval,mbpp_reg]   choose data sets: names, NAME=PATH, or file paths
    coding.evaluation.protocol=sampled                choose greedy, sampled (pass@k) or budget
    coding.evaluation.base_url=http://host:8000/v1    evaluate a server with OpenAI's API, such as vLLM's,
                                                      with fenced prompts and 2048 tokens on any hardware
    coding.evaluation.mode=verl                       generate with verl's standalone rollout
    coding.seed=2                                     use another seed for sampling
    hardware=gpu_1x                                   use Qwen2.5-Coder-1.5B-Instruct on one GPU
    --cfg job                                         print the whole configuration
    -m coding.seed=1,2                                run each seed

The same evaluation with options: python -m coding_model_project eval run --help.
Every `coding.evaluation` key: docs/configuration.md. Protocols, metrics and files: docs/evaluate.md.
Results: outputs/baseline/{metrics.json, results.jsonl, completions.jsonl, qa_logs/, report.html}.
"""

from coding_model_project.launch.recipe import run_main


def carry_out(config, command, _repeats):
    from coding_model_project.launch.run import make_absolute
    from coding_model_project.synthetic.prepare import prepare_evaluated
    from coding_model_project.verl_ext import evaluating

    make_absolute(config)
    prepare_evaluated(config.coding, say=print)
    evaluating.run(config, command=command, say=print)


if __name__ == "__main__":
    run_main("baseline", __doc__ or "", carry_out)
