"""A cluster without the resources of a run is refused with what is missing; verl would wait for ever."""

import pytest

from coding_model_project.launch.compose import compose_recipe
from coding_model_project.verl_ext.cluster.capacity import missing, missing_replicas

NODE = {"GPU": 8.0, "CPU": 32.0}
HALF = {"GPU": 4, "CPU": 64}


def of(*overrides):
    return compose_recipe("grpo", ["hardware=gpu_8x", *overrides])


def test_enough():
    assert missing(of(), {"a": {"GPU": 8, "CPU": 33}}) == ""
    assert missing(of("trainer.nnodes=2"), {"a": NODE, "b": NODE}) == ""


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ({"a": NODE}, "1 of the cluster's 1 nodes have trainer.n_gpus_per_node=8 GPUs and 24 CPUs"),
        ({"a": NODE, "b": HALF, "c": HALF}, "1 of the cluster's 3"),
        ({"a": NODE, "b": {"GPU": 8, "CPU": 8}}, "1 of the cluster's 2"),
    ],
)
def test_gpus_and_cpus_are_needed_together_on_a_node(nodes, said):
    assert said in missing(of("trainer.nnodes=2"), nodes)


def test_storage_units_of_the_whole_cluster():
    said = missing(of(), {"head": {"CPU": 2}, "a": {"GPU": 8, "CPU": 24}})
    assert "reserves 33 CPUs with it, and the cluster has 26 free" in said
    assert said.endswith("num_data_storage_units=1")
    assert missing(of(), {"a": {"GPU": 8, "CPU": 24}}).endswith("more nodes, or fewer GPUs")


def test_gpus_of_a_rollout_beside_the_trainers():
    own = ("actor_rollout_ref.rollout.nnodes=1", "actor_rollout_ref.rollout.n_gpus_per_node=4")
    said = missing(of(*own), {"a": {"GPU": 8, "CPU": 64}, "b": {"GPU": 2, "CPU": 64}})
    assert said.startswith("actor_rollout_ref.rollout.nnodes=1: ")
    assert "own 4 GPUs make 12, and the cluster has 10 free" in said
    assert missing(of(*own), {"a": {"GPU": 8, "CPU": 64}, "b": {"GPU": 4, "CPU": 64}}) == ""


def test_replicas_of_an_evaluation_need_a_gpu_and_two_cpus_on_one_node():
    assert missing_replicas(3, {"a": {"GPU": 1, "CPU": 2}, "b": {"GPU": 2, "CPU": 5}}) == ""
    said = missing_replicas(2, {"a": {"GPU": 2, "CPU": 3}, "head": {"CPU": 64}})
    assert said.startswith("2 replicas need a GPU and 2 CPUs each") and "free for 1;" in said
