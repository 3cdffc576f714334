"""A tiny starting model: tokenizer and weights trained from scratch on a corpus of conversations.

tinycode's corpus has programs with common mistakes (`tinycode.NoisyPrograms`), so reinforcement learning
has something to correct, and the model always samples some correct programs. tinyshell's has shell
commands of the same kind. Only answers are in the loss.
"""

from __future__ import annotations

import json
import random
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from coding_model_project.episodes.tool_calls import MARKS
from coding_model_project.progress import progress_bar

if TYPE_CHECKING:
    from transformers import Qwen2ForCausalLM, Qwen2Tokenizer

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE, TOOLS_CHAT_TEMPLATE = (
    Path(__file__).with_name(f"{name}.jinja").read_text("utf-8")
    for name in ("chat_template", "tools_chat_template")
)
"""The second has Qwen2.5's form of tools, calls and outcomes, in as few tokens as possible."""
PROBE = (
    "Define solve(xs).<|im_end|>\ndef solve(xs):\n    return sum(x * 10 for x in xs)\n<|im_end|>"
)
BUCKET_BATCHES = 16
"""Batches per sorted bucket: examples are sorted by length in it, which reduces padding."""

Progress = Callable[[int, int, float], None]
"""A callback after each step, with its number, the number of steps, and the loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyModelConfig:
    """The model's shape and training."""

    vocab_size: int = 1024
    hidden_size: int = 128
    intermediate_size: int = 512
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    max_positions: int = 512
    steps: int = 400
    batch_size: int = 48
    learning_rate: float = 3e-3
    warmup_steps: int = 30
    weight_decay: float = 0.05
    tools: bool = False
    """True if the chat template supports tools and calls, whose marks are tokens of their own."""


Conversation = Sequence[Mapping[str, str]]
"""Messages with `role` and `content`. The assistant's are in the loss."""


class Corpus(Protocol):
    """A source of training conversations; the same random numbers give the same ones."""

    def texts(self, rng: random.Random) -> Iterator[str]:
        """Yield the texts to train the tokenizer on."""
        ...

    def draw(self, rng: random.Random, n: int) -> Sequence[Conversation]:
        """Draw `n` new conversations."""
        ...


class DrawnCorpus(ABC):
    """A corpus (`Corpus`) whose conversations are drawn one by one.

    Args:
        n_texts: the number of conversations to train the tokenizer on.
    """

    def __init__(self, n_texts: int) -> None:
        self._n_texts = n_texts

    @abstractmethod
    def one(self, rng: random.Random) -> Conversation:
        """Draw a new conversation."""

    def texts(self, rng: random.Random) -> Iterator[str]:
        """See `Corpus`."""
        for conversation in self.draw(rng, self._n_texts):
            yield "\n".join(f"{message['role']}\n{message['content']}" for message in conversation)

    def draw(self, rng: random.Random, n: int) -> Sequence[Conversation]:
        """See `Corpus`."""
        return [self.one(rng) for _ in range(n)]


@dataclass(frozen=True, slots=True)
class _Example:
    tokens: list[int]
    trained: list[bool]
    """One per token: True if it is in the loss."""


@dataclass(frozen=True, slots=True)
class StartingModel:
    """A task set's starting model."""

    corpus: Callable[[], Corpus]
    """Called only if the model is missing."""
    takes: str
    """The duration to print."""
    config: TinyModelConfig = TinyModelConfig()


def pretrain_once(
    data_dir: Path, model: StartingModel, *, seed: int, say: Callable[[str], None]
) -> None:
    """Pre-train a tiny starting model into `data_dir/base`, unless it exists."""
    out = data_dir / "base"
    if (out / "config.json").exists():
        return
    say(f"pre-training a tiny model from scratch into {out} (once, {model.takes})")
    corpus = model.corpus()
    with progress_bar("pre-training", model.config.steps) as advance:
        pretrain(out, corpus, model.config, seed=seed, progress=advance)


def pretrain(
    out_dir: Path | str,
    corpus: Corpus,
    config: TinyModelConfig | None = None,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> None:
    """Train tokenizer and model from scratch, and save both in Hugging Face's format.

    `out_dir` appears only when it is complete.
    """
    import torch

    config = config or TinyModelConfig()
    rng = random.Random(seed)
    torch.manual_seed(seed)
    tokenizer = train_tokenizer(corpus.texts(rng), config.vocab_size, tools=config.tools)
    model = new_model(tokenizer, config)
    _fit(model, _batches(corpus, tokenizer, config, rng), config, progress)
    _save(Path(out_dir), model, tokenizer)


def train_tokenizer(
    texts: Iterator[str], vocab_size: int, *, tools: bool = False
) -> Qwen2Tokenizer:
    """Train a byte-level BPE tokenizer with our chat template, or the one for tools.

    It splits text by Qwen2's rule, because for this model type `AutoTokenizer` replaces any saved rule by
    Qwen2's: a tokenizer trained with another rule would give other tokens once reloaded.
    """
    from tokenizers import pre_tokenizers, trainers
    from transformers import AddedToken, Qwen2Tokenizer

    bpe = Qwen2Tokenizer().backend_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    learned = json.loads(bpe.to_str())["model"]
    tokenizer = Qwen2Tokenizer(
        vocab=learned["vocab"],
        merges=[tuple(merge) for merge in learned["merges"]],  # pyrefly: ignore[bad-argument-type]
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START],
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )
    tokenizer.chat_template = TOOLS_CHAT_TEMPLATE if tools else CHAT_TEMPLATE
    if tools:  # not special tokens, as in Qwen's tokenizers, so decoding keeps them
        marks = [AddedToken(mark, special=False, normalized=False) for mark in MARKS]
        tokenizer.add_tokens(marks)
    return tokenizer


def new_model(tokenizer: Qwen2Tokenizer, config: TinyModelConfig) -> Qwen2ForCausalLM:
    """Make a Qwen2 model with random weights."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    shape = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.kv_heads,
        max_position_embeddings=config.max_positions,
        tie_word_embeddings=True,
        use_sliding_window=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(shape).float()
    assert model.generation_config is not None
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def _batches(
    corpus: Corpus, tokenizer: Qwen2Tokenizer, config: TinyModelConfig, rng: random.Random
) -> Iterator[list[_Example]]:
    """Yield endless batches of examples with similar lengths."""
    while True:
        drawn = corpus.draw(rng, config.batch_size * BUCKET_BATCHES)
        examples = _examples(drawn, tokenizer)
        examples.sort(key=lambda example: len(example.tokens))
        bucket = [
            examples[i : i + config.batch_size] for i in range(0, len(examples), config.batch_size)
        ]
        rng.shuffle(bucket)
        yield from bucket


def _examples(conversations: Sequence[Conversation], tokenizer: Qwen2Tokenizer) -> list[_Example]:
    """Tokenize conversations in the chat template's form, up to the end of the last answer."""
    pieces = [_pieces(conversation) for conversation in conversations]
    texts = list(dict.fromkeys(text for conversation in pieces for text, _ in conversation))
    encoded: Any = tokenizer(texts)["input_ids"]
    ids = dict(zip(texts, encoded, strict=True))
    return [
        _Example(
            [token for text, _ in conversation for token in ids[text]],
            [trained for text, trained in conversation for _ in ids[text]],
        )
        for conversation in pieces
    ]


def _pieces(conversation: Conversation) -> list[tuple[str, bool]]:
    """Split a conversation's text before and after each answer; True marks the answers."""
    pieces: list[tuple[str, bool]] = []
    before = ""
    for message in conversation:
        before += f"{START}{message['role']}\n"
        if message["role"] == "assistant":
            pieces += [(before, False), (message["content"] + END, True)]
            before = "\n"
        else:
            before += f"{message['content']}{END}\n"
    return pieces


def _fit(
    model: Qwen2ForCausalLM,
    batches: Iterator[list[_Example]],
    config: TinyModelConfig,
    progress: Progress | None,
) -> None:
    """Train the model. The learning rate rises linearly, then falls linearly to 1%.

    The layers' matrices are trained by Muon, at twice the rate: after 400 steps the loss on new programs
    is AdamW's after 600 (0.085), for 16% more time a step.
    """
    import torch

    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is matrix for matrix in matrices)]
    decay = config.weight_decay
    muon = torch.optim.Muon(matrices, weight_decay=decay, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(others, weight_decay=decay, betas=(0.9, 0.98), fused=True)
    model.train()
    for step in range(config.steps):
        rise = min(1.0, (step + 1) / config.warmup_steps)
        rate = config.learning_rate * rise * (1 - 0.99 * step / config.steps)
        loss = _loss(model, next(batches))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, factor in ((muon, 2.0), (adamw, 1.0)):
            optimizer.param_groups[0]["lr"] = factor * rate
            optimizer.step()
            optimizer.zero_grad()
        if progress is not None:
            progress(step + 1, config.steps, loss.item())
    model.eval()


def _loss(model: Qwen2ForCausalLM, batch: list[_Example]) -> Any:
    """Return the mean loss over trained tokens; only their positions go through the output layer.

    Shapes: B examples, T positions, N trained tokens in all, V vocabulary.
    """
    import torch
    from torch.nn.functional import cross_entropy

    length = max(len(example.tokens) for example in batch)
    tokens_BT = torch.zeros(len(batch), length, dtype=torch.long)
    trained_BT = torch.zeros(len(batch), length, dtype=torch.bool)
    for row, example in enumerate(batch):
        n = len(example.tokens)
        tokens_BT[row, :n] = torch.tensor(example.tokens)
        trained_BT[row, :n] = torch.tensor(example.trained)
    # Padding is to the right of all trained tokens, so causal attention needs no mask.
    hidden_BTH = model.model(input_ids=tokens_BT, use_cache=False).last_hidden_state
    logits_NV = model.lm_head(hidden_BTH[:, :-1][trained_BT[:, 1:]])
    return cross_entropy(logits_NV, tokens_BT[trained_BT])


def _save(out_dir: Path, model: Qwen2ForCausalLM, tokenizer: Qwen2Tokenizer) -> None:
    from transformers import AutoTokenizer

    partial = out_dir.with_name(out_dir.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    model.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    reloaded: Any = AutoTokenizer.from_pretrained(partial)
    assert reloaded(PROBE)["input_ids"] == tokenizer(PROBE)["input_ids"], "reloads differently"
    shutil.rmtree(out_dir, ignore_errors=True)
    partial.replace(out_dir)
