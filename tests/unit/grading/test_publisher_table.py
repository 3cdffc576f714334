"""The page's table of publishers' rules is what the rules do."""

from tests import publisher_table


def test_the_page_is_up_to_date():
    assert publisher_table.PAGE.read_text() == publisher_table.page()
