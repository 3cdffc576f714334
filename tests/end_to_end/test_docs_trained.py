"""The pages of docs/ whose blocks train, from top to bottom; unit/test_docs.py executes the others."""

import pytest

from tests import docs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.mark.parametrize("page", docs.TRAINED)
def test_all_blocks_run(page, tmp_path):
    docs.execute(docs.ROOT / "docs" / page, tmp_path / "reader", "e2e", timeout_s=300)
