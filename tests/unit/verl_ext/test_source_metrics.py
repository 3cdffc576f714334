from coding_model_project.verl_ext.trainers.step_metrics import Judged, source_metrics

CODE = [Judged("mbpp/1", 1.0, 1.0, 30), Judged("mbpp/2", 0.0, 0.0, 10)]
SUMS = [Judged("gsm8k/train/3", 0.5, 0.0, 6), Judged("gsm8k/train/4", 1.5, 1.0, 8)]


def test_each_source_has_its_own_means_and_share():
    found = source_metrics([*CODE, *SUMS, *SUMS], lost=["gsm8k/train/9"])
    assert found["source/mbpp/reward"] == 0.5
    assert found["source/mbpp/tokens"] == 20
    assert found["source/mbpp/share"] == 1 / 3
    assert found["source/mbpp/infra_rate"] == 0.0
    assert found["source/gsm8k/reward"] == 1.0
    assert found["source/gsm8k/accepted"] == 0.5
    assert found["source/gsm8k/infra_rate"] == 0.2


def test_a_source_that_could_not_be_judged_at_all_shows():
    found = source_metrics(CODE, lost=["tasks/1", "tasks/2"])
    assert found["source/tasks/infra_rate"] == 1.0
    assert "source/tasks/reward" not in found


def test_a_step_of_one_source_has_none():
    assert source_metrics(CODE, lost=[]) == {}
    assert source_metrics([], lost=[]) == {}
