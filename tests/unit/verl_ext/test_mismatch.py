"""The bound on the mismatch of rollout and trainer."""

from __future__ import annotations

import math

import pytest

from coding_model_project.errors import TrainingError
from coding_model_project.launch.compose import compose_recipe

pytestmark = pytest.mark.verl


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["hardware=cpu"], 0.01),
        (["hardware=gpu_1x"], 0.1),
        (["hardware=gpu_1x", "+actor_rollout_ref.rollout.quantization=fp8"], 0.3),
        (["hardware=cpu", "coding.mode=colocate_async"], 0.1),
        (["hardware=cpu", "actor_rollout_ref.rollout.top_p=0.5"], 0.01 + math.log(2)),
        (["hardware=cpu", "coding.training.guards.max_mismatch=0.5"], 0.5),
    ],
)
def test_the_bound_follows_the_precision(overrides, expected):
    from coding_model_project.verl_ext.trainers import mismatch

    assert mismatch.limit(compose_recipe("grpo", overrides)) == pytest.approx(expected)


@pytest.mark.parametrize("found", [0.02, 10.8, math.nan])
def test_a_run_ends_above_the_bound(found):
    from coding_model_project.verl_ext.trainers import mismatch

    mismatch.check(0.009, 0.01, step=1)
    with pytest.raises(TrainingError, match=r"step 3: rollout/mismatch is .*max_mismatch=0\.01"):
        mismatch.check(found, 0.01, step=3)
