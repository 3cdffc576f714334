"""Sync small models of many architectures to vLLM, and compare its log-probabilities with transformers'.

    python -m tests.end_to_end.synced_models FOLDER

vLLM starts with dummy weights, as in a training, and gets two versions of real ones. Prints a JSON line
per model: how far apart log-probabilities are before and, at most, after a sync.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coding_model_project.launch.device import prepare_environment
from tests.tables import tables

_SYNCED = tables("synced_models")
VOCABULARY = _SYNCED["shape"]["vocab_size"]
SHAPE = _SYNCED["shape"]
"""Weights vary enough that tokens are not all as likely: wrong ones would not show."""
KINDS: dict[str, dict[str, Any]] = _SYNCED["kinds"]
CACHE_BYTES = 2**24
PROMPT = [1, *(7 * i % VOCABULARY for i in range(1, 40))]


def shapes() -> Iterator[tuple[str, bool]]:
    """Yield each architecture, with a tied and an untied output head."""
    for kind in KINDS:
        for tied in (True, False):
            yield kind, tied


@dataclass(frozen=True)
class Version:
    """Weights of a model, and their log-probabilities of PROMPT by transformers."""

    weights: dict[str, Any]
    log_probs: Any


def versions(folder: Path, kind: str, tied: bool) -> list[Version]:
    """Write a model's folder, and return three versions of its weights."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SHAPE, **KINDS[kind], tie_word_embeddings=tied)
    model = AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(folder)
    ids = torch.tensor([PROMPT])
    found = []
    with torch.no_grad():
        for _ in range(3):
            log_probs = model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
            weights = {name: one.clone() for name, one in model.state_dict().items()}
            found.append(Version(weights, log_probs))
            for parameter in model.parameters():
                parameter.add_(0.3 * parameter.std().nan_to_num() * torch.randn_like(parameter))
    return found


def compare(folder: Path, versions: list[Version]) -> dict[str, float]:
    """Return the largest differences of log-probabilities, in nats, and the engine's cache in bytes."""
    from vllm import LLM

    began = time.monotonic()
    engine = LLM(
        model=str(folder),
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="float32",
        enforce_eager=True,
        max_model_len=64,
        kv_cache_memory_bytes=CACHE_BYTES,
        logprobs_mode="raw_logprobs",
        worker_extension_cls="coding_model_project.verl_ext.cpu.vllm_worker.CPUWorkerExtension",
    )
    config = engine.llm_engine.vllm_config.cache_config
    before = _difference(engine, versions[0])
    after = []
    for version in versions[1:]:
        engine.collective_rpc("load", args=(list(version.weights.items()),))
        after.append(_difference(engine, version))
    del engine
    gc.collect()
    return {
        "before": round(before, 3),
        "after": max(after),
        "cache_bytes": config.kv_cache_memory_bytes,
        "seconds": round(time.monotonic() - began, 1),
    }


def inspect_in_this_process() -> None:
    """Have vLLM inspect a model's class here, not in a process that imports all of vLLM for each."""
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda inspect: inspect()


def _difference(engine: Any, version: Version) -> float:
    import torch
    from vllm import SamplingParams

    asked = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
    (answer,) = engine.generate({"prompt_token_ids": PROMPT}, asked, use_tqdm=False)
    theirs = [
        row[token].logprob
        for row, token in zip(answer.prompt_logprobs[1:], PROMPT[1:], strict=True)
    ]
    return float((version.log_probs - torch.tensor(theirs)).abs().max())


def main(root: Path) -> None:
    prepare_environment("cpu")
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # engine and worker in this process
    os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
    inspect_in_this_process()
    # Before any engine starts: vLLM changes the classes of transformers that it runs itself.
    made = {(kind, tied): versions(root / f"{kind}_{tied}", kind, tied) for kind, tied in shapes()}
    for (kind, tied), found in made.items():
        compared = compare(root / f"{kind}_{tied}", found)
        print(json.dumps({"model": kind, "tied": tied, **compared}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
