"""A fleet of real servers under programs; `tests.soak.fleet` does the same with 10,000."""

import pytest

from tests.soak import fleet

pytestmark = [pytest.mark.contract, pytest.mark.sandbox]

PROGRAMS = 400


@pytest.mark.timeout(300)
async def test_no_program_is_lost_wrong_or_counted_twice():
    outcome = await fleet.run(PROGRAMS)
    assert outcome.ok, outcome
    assert sum("used from now on" in line for line in outcome.said) >= 3
    assert sum("and not used" in line for line in outcome.said) == 1
