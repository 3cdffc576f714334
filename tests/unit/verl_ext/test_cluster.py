"""What a run asks of the nodes of a Ray that it joins."""

from __future__ import annotations

import time

import pytest
from omegaconf import OmegaConf

from coding_model_project.errors import ClusterError, ConfigError
from coding_model_project.verl_ext.cluster import probe

pytestmark = pytest.mark.verl  # the package imports Ray


@pytest.fixture
def look(tmp_path):
    """What this host says of itself, as if it were two nodes."""
    (tmp_path / "mark").touch()
    return probe.look_function()(str(tmp_path / "mark"), [str(tmp_path / "problems.jsonl")])


@pytest.fixture
def config(tmp_path):
    return OmegaConf.create(
        {
            "coding": {
                "run_dir": str(tmp_path),
                "problems": [str(tmp_path / "problems.jsonl")],
                "min_memory_gb": 0.1,
            },
            "actor_rollout_ref": {"model": {"path": "owner/name"}},
        }
    )


def compare(config, seen, mine):
    probe.compare(config, "node node1 (10.0.0.2)", seen, mine, probe.wanted_paths(config))


def test_equal_nodes_pass(config, look):
    compare(config, look | {"missing": []}, look)


@pytest.mark.parametrize("name", ["verl", "vllm", "torch", "Python", "coding_model_project"])
def test_another_version_names_node_package_and_both_versions(name, config, look):
    seen = look | {"versions": look["versions"] | {name: "9.9"}}
    with pytest.raises(ClusterError, match=rf"node1 \(10\.0\.0\.2\): {name} is 9\.9 there and "):
        compare(config, seen, look)


@pytest.mark.parametrize(("off_s", "word"), [(3600, "ahead of"), (-3600, "behind")])
def test_a_clock_off_by_an_hour_is_refused(off_s, word, config, look):
    seen = look | {"clock": time.time() + off_s}
    with pytest.raises(ClusterError, match=f"its clock is 3[56].. s {word} this node's"):
        compare(config, seen, look)


def test_a_slow_answer_is_no_clock_that_is_off(config, look):
    mine = look | {"clock": time.time() - 300}  # asked then
    compare(config, look | {"missing": [], "clock": time.time() - 200}, mine)


def test_a_folder_that_is_not_shared_and_a_file_that_is_not_there_name_their_keys(config, look):
    with pytest.raises(ConfigError, match=r"coding\.run_dir=.* is not the same folder there"):
        compare(config, look | {"shared": False}, look)
    with pytest.raises(ConfigError, match=r"coding\.problems: no .*problems\.jsonl there"):
        compare(config, look, look)


def test_too_little_memory_names_the_key(config, look):
    with pytest.raises(ConfigError, match=r"coding\.min_memory_gb=0\.1: 0\.0 GB"):
        compare(config, look | {"missing": [], "available_gb": 0.01}, look)


def test_judges_go_to_nodes_that_train_first_and_to_none_that_is_dead():
    from coding_model_project.verl_ext.rewards.placement import judging_nodes

    def node(name, alive=True, **resources):
        return {"NodeID": name, "Alive": alive, "Resources": resources}

    head, dead = node("head", CPU=4.0), node("dead", alive=False, CPU=4.0, GPU=8.0)
    trains, other = node("a", CPU=4.0, GPU=8.0), node("b", CPU=4.0, GPU=8.0)
    assert judging_nodes([head, dead, trains, other, node("none")]) == ["a", "b", "head"]
