"""The pages of docs/ from top to bottom, with the blocks that train."""

import pytest

from tests import docs

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SLOW = [page for page in docs.PAGES if any(block.slow for block in docs.blocks(page))]


@pytest.mark.parametrize("page", SLOW, ids=lambda page: page.name)
def test_all_blocks_run(page, tmp_path):
    folder = tmp_path / "reader"
    folder.mkdir()
    docs.execute(page, folder, slow=True, timeout_s=300)
