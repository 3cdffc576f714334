"""Errors of a DPO run's inputs, raised before verl is imported."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coding_model_project.errors import ConfigError
from coding_model_project.launch.checks.checks import check_dpo
from coding_model_project.launch.compose import compose_recipe


@pytest.fixture
def given(tmp_path):
    """Valid inputs: 40 pairs, a model, and a checkpoint of another one."""
    row = {"prompt": [{"role": "user", "content": "x"}], "chosen": "a", "rejected": "b"}
    equal = row | {"rejected": "a"}
    rows = {"pairs": [row] * 40, "equal": [equal] * 40, "few": [row] * 9}
    for name, members in (rows | {"sft": [{"messages": "x"}] * 40}).items():
        pq.write_table(pa.Table.from_pylist(members), tmp_path / f"{name}.parquet")
    (tmp_path / "text.parquet").write_text("no parquet")
    for name, size in (("model", 128), ("run/global_step_2/huggingface", 64)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text(f'{{"hidden_size": {size}}}')
    files = [f"data.{key}_files={tmp_path}/pairs.parquet" for key in ("train", "val")]
    return ["hardware=cpu", *files, f"model.path={tmp_path}/model"]


def test_what_can_start(given):
    check_dpo(compose_recipe("dpo", given))


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("data.train_files={}/sft.parquet", "no column chosen: not pairs; make it with"),
        ("data.train_files={}/text.parquet", "is not a parquet file; make it with"),
        ("data.train_files={}/equal.parquet", "chosen equals rejected in every pair"),
        ("data.train_files={}/few.parquet", "9 rows do not fill one batch"),
        ("data.train_batch_size=33", "set data.train_batch_size=32"),
        ("data.use_dynamic_bsz=true data.max_length=8192", "set it to 16384 or more"),
        ("data.val_files=null", "or set trainer.test_freq=-1"),
        ("coding.dpo.loss=cdpo", "cdpo needs one above 0"),
        ("coding.dpo.label_smoothing=0.1", "with coding.dpo.loss=sigmoid"),
        ("coding.dpo.label_smoothing=0.5", "set it to a share of at least 0 and below 0.5"),
        ("coding.dpo.beta=0", "coding.dpo.beta=0.0: set it to a number above 0"),
        ("engine.ulysses_sequence_parallel_size=2", "needs it to be 1"),
        ("trainer.resume_from_path={}/run/global_step_2", "hidden_size: 64 → 128"),
    ],
)
def test_one_line_naming_the_key(given, tmp_path, override, says):
    config = compose_recipe("dpo", [*given, *override.format(tmp_path).split()])
    with pytest.raises(ConfigError) as caught:
        check_dpo(config)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
