"""The pages of docs/ whose blocks train, from top to bottom; unit/test_docs.py executes the others."""

import pytest

from tests import docs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SLOW = [page for page in docs.PAGES if any("e2e" in block.needs for block in docs.blocks(page))]


@pytest.mark.parametrize("page", SLOW, ids=lambda page: page.name)
def test_all_blocks_run(page, tmp_path):
    folder = tmp_path / "reader"
    if page.name == "trl.md":
        random_model(folder / "model")
    docs.execute(page, folder, "e2e", timeout_s=300)


def random_model(out):
    """The model that a reader has already: it need not be able to do anything."""
    from coding_model_project.synthetic.tiny_model import (
        TinyModelConfig,
        new_model,
        train_tokenizer,
    )

    config = TinyModelConfig(hidden_size=64, intermediate_size=64, layers=1)
    tokenizer = train_tokenizer(iter(["def solve(x):\n    return x\n"]), 300)
    new_model(tokenizer, config).save_pretrained(out)
    tokenizer.save_pretrained(out)
