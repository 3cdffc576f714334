"""Values of a recipe's overrides that a job needs."""

import pytest

from coding_model_project.launch.jobs.base import value_of


@pytest.mark.parametrize(
    ("overrides", "value"),
    [
        (("coding.mirror.url=s3://bucket/run",), "s3://bucket/run"),
        (("++coding.mirror.url=a=b",), "a=b"),
        (("coding.mirror.url=null",), None),
        (("hardware=cpu",), None),
    ],
)
def test_the_value_of_a_key(overrides, value):
    assert value_of(overrides, "coding.mirror.url") == value
