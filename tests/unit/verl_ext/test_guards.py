"""Guards that end an unstable training."""

from __future__ import annotations

import math

import pytest

from coding_model_project.errors import TrainingError
from coding_model_project.verl_ext.trainers.guards import Guards, no_program

NONE = dict.fromkeys(("max_grad_norm", "min_entropy", "max_entropy"))


def guards(**bounds) -> Guards:
    return Guards({**NONE, "patience": 2, **bounds})


def test_without_bounds_nothing_is_reported_and_nothing_ends():
    unbounded = guards()
    metrics = {"actor/grad_norm": math.inf, "actor/entropy": math.nan}
    for step in range(5):
        assert unbounded.check(metrics) == {}
        unbounded.end(metrics, step)


def test_a_bound_that_is_passed_twice_in_a_row_ends_the_run():
    guarded = guards(max_grad_norm=1.0)
    counts = []
    for step, norm in enumerate((2.0, 0.5, 2.0)):
        metrics = {"actor/grad_norm": norm}
        counts.append(guarded.check(metrics)["guard/max_grad_norm"])
        guarded.end(metrics, step)
    assert counts == [1, 0, 1]
    metrics = {"actor/grad_norm": 3.0}
    guarded.check(metrics)
    with pytest.raises(TrainingError) as caught:
        guarded.end(metrics, 4)
    for word in ("step 4", "actor/grad_norm is 3", "coding.training.guards.max_grad_norm=1"):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("bound", "metric", "inside", "outside"),
    [
        ("min_entropy", "actor/entropy", 0.5, 0.1),
        ("max_entropy", "actor/entropy", 0.1, 0.5),
        ("max_grad_norm", "actor/grad_norm", 0.1, math.nan),
    ],
)
def test_which_side_of_a_bound_is_outside(bound, metric, inside, outside):
    guarded = guards(**{bound: 0.3})
    assert guarded.check({metric: inside}) == {f"guard/{bound}": 0}
    assert guarded.check({metric: outside}) == {f"guard/{bound}": 1}
    assert guarded.check({}) == {f"guard/{bound}": 1}  # not measured in this step


@pytest.mark.parametrize(("style", "other"), [("fenced", "bare"), ("bare", "fenced")])
def test_a_step_without_any_program_names_the_likely_cause(style, other):
    said = no_program({"judge/no_code": 1.0}, style)
    assert f"coding.prompt={style}: " in said and f"data rows --prompt {style}" in said
    assert said.endswith(f"coding.prompt={other}")
    assert no_program({"judge/no_code": 0.99}, style) is None
    assert no_program({"judge/infra_rate": 1.0}, style) is None
