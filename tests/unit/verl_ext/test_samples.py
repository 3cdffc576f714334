"""Metrics and traces of a step's judged samples."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.verl


@pytest.fixture
def samples(cpu_platform):
    from coding_model_project.verl_ext.trainers import samples

    return samples


@pytest.fixture
def judged(samples):
    def of(problem, reward, accepted, tokens):
        about = json.dumps({"problem": problem, "tokens": tokens})
        info = {"acc": accepted, samples.SAMPLE_KEY: about}
        return samples.Sampled(key="a", prompt=str, completion=str, info=info, reward=reward)

    return of


def test_each_source_has_its_own_means_share_and_losses(samples, judged):
    code = [judged("mbpp/1", 1.0, 1.0, 30), judged("mbpp/2", 0.0, 0.0, 10)]
    sums = [judged("gsm8k/train/3", 0.5, 0.0, 6), judged("gsm8k/train/4", 1.5, 1.0, 8)]
    found = samples.source_metrics([*code, *sums, *sums], lost=["gsm8k/train/9"])
    means = {"reward": 0.5, "accepted": 0.5, "tokens": 20, "share": 1 / 3, "infra_rate": 0.0}
    assert found | {f"source/mbpp/{name}": value for name, value in means.items()} == found
    assert (found["source/gsm8k/reward"], found["source/gsm8k/infra_rate"]) == (1.0, 0.2)
    found = samples.source_metrics(code, lost=["tasks/1", "tasks/2"])  # none could be judged
    assert found["source/tasks/infra_rate"] == 1.0
    assert "source/tasks/reward" not in found
    assert samples.source_metrics(code, lost=[]) == samples.source_metrics([], lost=[]) == {}


def test_shares_of_repairs_are_of_all_samples_and_rise_to_the_accepted_share(samples):
    made = [
        {"acc": acc, "repairs": n, "repaired": float(acc and n > 0), "public_judge_s": 0.5}
        for acc, n in [(1.0, 0.0), (1.0, 1.0), (1.0, 2.0), (0.0, 2.0)]
    ]
    found = samples.repair_metrics(made, 2)
    by_round = [found[f"repair/accepted_by_round_{number}"] for number in range(3)]
    assert by_round == [0.25, 0.5, 0.75]
    assert (found["repair/rounds"], found["repair/tried"]) == (1.25, 0.75)
    assert (found["repair/repaired"], found["repair/judge_s"]) == (pytest.approx(0.5), 2.0)
    assert samples.repair_metrics([], 2) == {}


def test_work_has_means_and_a_sum_of_tokens(samples):
    work = [{"agent_turns": 2.0, "agent_untrained_tokens": 5.0, "agent_ended_x": 1.0, "acc": 1.0}]
    work += [{"agent_turns": 4.0, "agent_untrained_tokens": 1.0, "agent_ended_x": 0.0, "acc": 0.0}]
    figures = {"agent/turns": 3.0, "agent/untrained_tokens": 6.0, "agent/ended_x": 0.5}
    assert samples.work_metrics(work) == figures
    assert samples.work_metrics([{"bash_failed_commands": 2.0}]) == {"bash/failed_commands": 2.0}


def test_spans_that_overlap_lie_in_rows_of_their_own(samples, tmp_path):
    spans = [("judging", "x", start, start + 2, {}) for start in range(3)]
    samples.write_trace(tmp_path, 3, spans)
    events = json.loads((tmp_path / "step_000003.json").read_text())["traceEvents"]
    assert [event["tid"] for event in events if event["ph"] == "X"] == [0, 1, 0]


# The order of samples by length.


def order_within(lengths: list[int], within: int) -> list[int]:
    from coding_model_project.verl_ext.trainers import batches

    return batches.order_within(lengths, within)


def test_each_sample_stays_in_its_mini_batch() -> None:
    assert order_within([5, 1, 3, 9, 2, 7], within=3) == [1, 2, 0, 4, 5, 3]


@given(lengths=st.lists(st.integers(1, 99)), within=st.integers(1, 40))
def test_nothing_is_lost_and_neighbours_are_of_like_length(lengths: list[int], within: int) -> None:
    order = order_within(lengths, within)
    assert sorted(order) == list(range(len(lengths)))
    assert [place // within for place in order] == [
        place // within for place in range(len(lengths))
    ]
    for start in range(0, len(lengths), within):
        run = [lengths[place] for place in order[start : start + within]]
        assert run == sorted(run)
