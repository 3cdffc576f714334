"""SFT on verified demonstrations, with verl's own trainer.

    python -m recipes.sft [key=value ...]

Without arguments, on a machine without an accelerator: prepares the embedded task set and a tiny
starting model if they are missing, and trains on the demonstrations of the easy levels. Run it again
to resume.

    model.path=MODEL                       start from another model
    data.train_files=FILE.parquet          rows with `messages` (and `data_source`)
    optim.lr=1e-4                          any key of verl's tree
    coding.seed=2                          another seed
    hardware=gpu_1x                        Qwen2.5-Coder-1.5B-Instruct on one GPU
    --cfg job                              print the whole configuration
    -m coding.seed=1,2                     one run per seed

Results: outputs/sft/{config.yaml, metrics.jsonl, tensorboard/, checkpoints/}.
"""

from recipes.run import run_recipe


def train(config):  # type: ignore[no-untyped-def]
    from coding_model_project.verl_ext import checks, sft
    from recipes.run import ready

    ready(config, model_key="model.path")
    checks.check_rows(config, "data.train_files", "data.val_files")
    if not config.data.use_dynamic_bsz:
        ranks = config.trainer.nnodes * config.trainer.n_gpus_per_node
        checks.check_divides(
            "data.train_batch_size",
            config.data.train_batch_size,
            ranks * config.data.micro_batch_size_per_gpu,
            "ranks × data.micro_batch_size_per_gpu",
        )
    sft.train(config)


if __name__ == "__main__":
    run_recipe("sft", __doc__ or "", train)
