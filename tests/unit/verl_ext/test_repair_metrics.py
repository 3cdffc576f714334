import pytest

from coding_model_project.verl_ext.trainers.step_metrics import repair_metrics


def test_shares_are_of_all_samples_and_rise_to_the_accepted_share():
    samples = [
        {"acc": acc, "repairs": n, "repaired": float(acc and n > 0), "public_judge_s": 0.5}
        for acc, n in [(1.0, 0.0), (1.0, 1.0), (1.0, 2.0), (0.0, 2.0)]
    ]
    found = repair_metrics(samples, 2)
    by_round = [found[f"repair/accepted_by_round_{number}"] for number in range(3)]
    assert by_round == [0.25, 0.5, 0.75]
    assert (found["repair/rounds"], found["repair/tried"]) == (1.25, 0.75)
    assert found["repair/repaired"] == pytest.approx(0.5)
    assert found["repair/judge_s"] == 2.0
    assert repair_metrics([], 2) == {}
