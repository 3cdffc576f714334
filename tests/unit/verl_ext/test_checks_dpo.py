"""Errors of a DPO run's inputs, raised before verl is imported."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks.checks import check_dpo
from coding_model_project.launch.compose import compose_recipe
from tests.tables import tables

CASES = tables("verl_ext")


@pytest.fixture
def given(tmp_path):
    """Valid inputs: 40 pairs and a model."""
    row = {"prompt": [{"role": "user", "content": "x"}], "chosen": "a", "rejected": "b"}
    equal = row | {"rejected": "a"}
    rows = {"pairs": [row] * 40, "equal": [equal] * 40, "few": [row] * 9}
    for name, members in (rows | {"sft": [{"messages": "x"}] * 40}).items():
        pq.write_table(pa.Table.from_pylist(members), tmp_path / f"{name}.parquet")
    (tmp_path / "text.parquet").write_text("no parquet")
    (tmp_path / "model").mkdir()
    (tmp_path / "model/config.json").write_text("{}")
    files = [f"data.{key}_files={tmp_path}/pairs.parquet" for key in ("train", "val")]
    return ["hardware=cpu", *files, f"model.path={tmp_path}/model"]


def test_what_can_start(given):
    check_dpo(compose_recipe("dpo", given))


@pytest.mark.parametrize(("override", "says"), CASES["naming key"])
def test_one_line_naming_the_key(given, tmp_path, override, says):
    config = compose_recipe("dpo", [*given, *override.format(tmp_path).split()])
    with pytest.raises(ConfigError) as caught:
        check_dpo(config)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
