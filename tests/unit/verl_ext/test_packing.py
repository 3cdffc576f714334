"""Packed samples train as separate ones do, and a shared prompt is computed once."""

from __future__ import annotations

import copy
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import tables

CASES = tables("verl_ext")

pytestmark = pytest.mark.verl

SHAPE = {
    "vocab_size": 99, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
PROMPTS = [12, 12, 12, 7]
RESPONSES = [5, 9, 1, 6]


@pytest.mark.parametrize(("kind", "more"), CASES["log probabilities"])
def test_log_probabilities_and_gradients_equal_those_of_separate_samples(kind, more):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from coding_model_project.verl_ext.cpu import packed_attention
    from coding_model_project.verl_ext.cpu.packing import pack

    packed_attention.register()
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SHAPE, **more)
    plain = AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation="eager")
    ours = AutoModelForCausalLM.from_config(config, attn_implementation=packed_attention.NAME)
    ours.load_state_dict(plain.state_dict())
    prompts = {n: torch.randint(3, 99, (n,)) for n in PROMPTS}
    samples = [
        torch.cat([prompts[n], torch.randint(3, 99, (more_,))])
        for n, more_ in zip(PROMPTS, RESPONSES, strict=True)
    ]
    expected = torch.cat(
        [
            plain(one[None]).logits[0, n - 1 : -1].log_softmax(-1).gather(1, one[n:, None])[:, 0]
            for one, n in zip(samples, PROMPTS, strict=True)
        ]
    )
    ids = torch.cat(samples)
    positions = torch.cat([torch.arange(len(one)) for one in samples])
    packed = pack(ids, [0, *accumulate(map(len, samples))], PROMPTS, share=True)
    assert len(packed.tokens) == len(ids) - 2 * 12
    packed_attention.use(packed)
    logits = ours(
        ids[packed.tokens][None],
        position_ids=positions[packed.tokens][None],
        logits_to_keep=packed.kept,
        use_cache=False,
    ).logits[0]
    assert len(logits) == sum(RESPONSES) - 2  # the prompt's last token predicts three first ones
    found = logits.log_softmax(-1)[packed.rows, ids[packed.predicting + 1]]
    assert torch.allclose(found, expected, atol=1e-5)
    weights = torch.randn_like(expected)
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    for one, other in zip(plain.parameters(), ours.parameters(), strict=True):
        assert one.grad is not None
        assert torch.allclose(one.grad, other.grad, atol=1e-4)


@given(
    samples=st.lists(
        st.tuples(st.sampled_from([(), (5,), (5, 6), (6, 5)]), st.integers(0, 3)).filter(any),
        min_size=1,
        max_size=8,
    ),
    share=st.booleans(),
)
def test_every_token_has_a_place(samples, share):
    import torch

    from coding_model_project.verl_ext.cpu.packing import pack

    rows = [[*prompt, *range(7, 7 + n)] for prompt, n in samples]
    ids = torch.tensor([token for row in rows for token in row])
    offsets = [0, *accumulate(map(len, rows))]
    packed = pack(ids, offsets, [len(prompt) for prompt, _ in samples], share)
    assert sum(segment.length for segment in packed.segments) == len(packed.tokens) <= len(ids)
    assert share or len(packed.tokens) == len(ids)
    predicted = [
        start + i + 1
        for start, (prompt, _), row in zip(offsets, samples, rows, strict=False)
        for i in range(max(0, len(prompt) - 1), len(row) - 1)
    ]
    assert (packed.predicting + 1).tolist() == predicted
    # The token that predicts is the same one in the pack, or another sample's copy of it.
    assert torch.equal(ids[packed.tokens[packed.kept][packed.rows]], ids[packed.predicting])


@pytest.mark.parametrize(("kind", "more", "leaks"), CASES["models"])
def test_a_model_whose_samples_read_each_other_is_refused(kind, more, leaks):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from coding_model_project.verl_ext.cpu import packed_attention

    packed_attention.register()
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SHAPE, **more, initializer_range=0.5)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=packed_attention.NAME)
    if leaks:
        with pytest.raises(ValueError, match=r"read each other's tokens.*use_remove_padding=false"):
            packed_attention.check(model)
    else:
        packed_attention.check(model)


def test_unpacked_samples_are_refused():
    import torch

    from coding_model_project.verl_ext.cpu import packed_attention

    packed_attention.use(None)
    one = torch.zeros(2, 4, 6, 8)
    with pytest.raises(ValueError, match=r"needs model\.use_remove_padding=true"):
        packed_attention.attend(torch.nn.Module(), one, one, one, None)
