"""A run in a joined Ray: checks of its nodes, and the environment that it sends there."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from coding_model_project.errors import ClusterError, ConfigError, TrainingError
from coding_model_project.launch.compose import compose_recipe
from coding_model_project.verl_ext.cluster import membership
from coding_model_project.verl_ext.cluster.nodes import Node, alive_nodes

pytestmark = pytest.mark.verl

HEAD = "10.0.0.1:6379"


def config(**trainer: Any) -> Any:
    return OmegaConf.create(
        {
            "coding": {"min_memory_gb": 48},
            "trainer": {"nnodes": 2, "n_gpus_per_node": 1, "device": "cpu"} | trainer,
            "ray_kwargs": {"ray_init": {"address": HEAD, "num_cpus": 16}},
            "actor_rollout_ref": {"rollout": {"full_determinism": False}},
        }
    )


def node(number: int, gpus: float):
    where = f"10.0.0.{number}"
    return Node(id=str(number), host=f"node{number}", address=where, port=1, cpus=4, gpus=gpus)


@pytest.fixture
def train(monkeypatch, tmp_path):
    """Return a function that starts a training without a Ray, and the list of Ray's ends."""
    import ray

    from coding_model_project.verl_ext.cluster import session
    from coding_model_project.verl_ext.trainers import grpo

    for name in ("_check_by_verl", "_choose_loop"):
        monkeypatch.setattr(grpo, name, lambda _: None)
    monkeypatch.setattr(membership, "check_capacity", lambda _, **__: None)
    monkeypatch.setattr(session, "start_ray", lambda _: None)
    ended = []
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
    run = OmegaConf.merge(config(), {"coding": {"run_dir": str(tmp_path)}})
    return lambda: grpo._train(run, None), ended


def test_nodes_are_checked_before_the_run_waits_for_free_resources(monkeypatch, train):

    start, ended = train
    monkeypatch.setattr(membership, "check_capacity", lambda *_, **__: pytest.fail("waited"))
    monkeypatch.setattr(membership, "alive_nodes", lambda: [node(1, 1), node(2, 0)])
    message = r"trainer\.nnodes=2: .*node1 \(10\.0\.0\.1\) has 1, node2 .* has 0; run `ray start"
    with pytest.raises(ClusterError, match=message):
        start()
    assert ended


def test_full_disks_of_nodes_are_looked_for_before_the_runs_processes_there_end(monkeypatch, train):
    """A guard that ends takes the processes of its node along, also those that would answer."""
    from ray.exceptions import RayError

    from coding_model_project.verl_ext.trainers import grpo

    guarded: list[bool] = []

    @contextmanager
    def in_cluster(_: Any) -> Iterator[list[Node]]:
        guarded.append(True)
        try:
            yield []
        finally:
            guarded.clear()

    def fail(_: Any) -> None:
        raise RayError("a rank died")

    monkeypatch.setattr(grpo, "_run_trainer", fail)
    monkeypatch.setattr(membership, "full_disks", lambda: "; its disk is full" if guarded else "")
    monkeypatch.setattr(membership, "in_cluster", in_cluster)
    with pytest.raises(TrainingError, match=r"^a rank died; its disk is full$"):
        train[0]()


@pytest.mark.parametrize(("own", "asked"), [("1", []), ("head", ["1"])])
def test_a_node_is_checked_unless_it_is_the_drivers_own(monkeypatch, tmp_path, own, asked):
    """A head without CPUs is the common place for a driver: it checks the only node that works."""

    head = Node(id="head", host="head", address="10.0.0.9", port=1, cpus=0, gpus=0)
    monkeypatch.setattr(membership, "alive_nodes", lambda: [head, node(1, 1)])
    monkeypatch.setattr(membership, "own_node_id", lambda: own, raising=False)
    monkeypatch.setattr(membership, "conclude", lambda *_: [])
    seen: list[str] = []
    monkeypatch.setattr(membership, "_on_each", lambda nodes, *_: seen.extend(nodes))
    names = {"coding": {"run_dir": str(tmp_path), "problems": []}}
    names |= {"actor_rollout_ref": {"model": {"path": "a/name"}}}
    membership.check_nodes(OmegaConf.create(names))
    assert seen == asked


def test_a_nodes_folder_for_temporary_files_is_there_when_its_disk_is_checked(monkeypatch):
    """Python and the check would take /tmp instead, and keep to it in that process."""
    import ray

    order: list[str] = []
    guard = SimpleNamespace(available_gb=SimpleNamespace(remote=lambda: None))
    made = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda *_: guard))
    monkeypatch.setattr(ray, "remote", lambda **_: lambda _: made)
    monkeypatch.setattr(membership, "alive_nodes", lambda: [node(1, 1), node(2, 1)])
    monkeypatch.setattr(membership, "own_node_id", lambda: "1")
    monkeypatch.setattr(membership, "pinned", lambda _: {})
    monkeypatch.setattr(membership, "_answer", lambda *_: order.append("guard") or 64.0)
    monkeypatch.setattr(membership, "check_nodes", lambda _: order.append("check"))
    with membership.in_cluster(config()):
        assert order == ["guard", "check"]


def test_a_node_with_too_little_memory_is_named_with_the_key():
    membership._check_memory(config(), node(2, 1), 50.0)
    with pytest.raises(ConfigError, match=r"node2 \(10\.0\.0\.2\): coding\.min_memory_gb=48: 3\.0"):
        membership._check_memory(config(), node(2, 1), 3.0)


def test_a_joined_ray_gets_this_process_environment_and_none_of_the_sizes(monkeypatch):
    import ray

    from coding_model_project.isolation.processes import TOKEN
    from coding_model_project.launch.device import prepare_environment
    from coding_model_project.verl_ext.cluster.session import start_ray

    given: dict[str, Any] = {}
    monkeypatch.setattr(ray, "init", lambda **options: given.update(options))
    monkeypatch.setenv(TOKEN, "abc")
    monkeypatch.setenv("TMPDIR", "/tmp/run-abc")
    monkeypatch.setenv("VERL_PLATFORM", "cpu")
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    prepare_environment("cpu")
    start_ray(config())
    assert given["address"] == HEAD
    assert "num_cpus" not in given
    variables = given["runtime_env"]["env_vars"]
    assert variables[TOKEN] == "abc"
    assert variables["TMPDIR"] == "/tmp/run-abc"  # the run's own; a user's stays on its node
    assert {"VERL_PLATFORM", "TORCH_COMPILE_DISABLE"} <= variables.keys()
    assert "secret" not in variables.values()


def test_a_token_that_a_head_refuses_is_one_line(monkeypatch):
    import ray

    from coding_model_project.verl_ext.cluster.session import start_ray

    def refuse(**_: Any) -> None:
        try:
            raise RuntimeError("Failed to connect to GCS. …\nray.exceptions.AuthenticationError: …")
        except RuntimeError as error:
            raise ConnectionError("Failed to connect to Ray cluster") from error

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(ClusterError, match=rf"^Ray at {HEAD}: the head refuses .*RAY_AUTH_TOKEN"):
        start_ray(config())


def test_judges_go_to_nodes_that_train_first_and_to_none_that_is_dead(monkeypatch):
    import ray

    from coding_model_project.verl_ext.rewards import placement

    def ray_node(name: str, alive: bool = True, **resources: float) -> dict[str, Any]:
        where = {"Hostname": f"host-{name}", "Address": "10.0.0.1", "Port": 1}
        manager = {f"NodeManager{key}": value for key, value in where.items()}
        return {"NodeID": name, "Alive": alive, "Resources": resources, **manager}

    head, dead = ray_node("head", CPU=4.0), ray_node("dead", alive=False, CPU=4.0, GPU=8.0)
    one, other = ray_node("a", CPU=4.0, GPU=8.0), ray_node("b", CPU=4.0, GPU=8.0)
    monkeypatch.setattr(ray, "nodes", lambda: [head, dead, one, other, ray_node("none")])
    monkeypatch.setattr(placement, "pinned", lambda node: {"node": node})
    made = SimpleNamespace(options=lambda **given: SimpleNamespace(remote=lambda *_: given))
    for workers, judging in ((2, ["a", "b"]), (9, ["a", "b", "head"])):  # one judge a node
        manager = SimpleNamespace(
            config=SimpleNamespace(reward=SimpleNamespace(num_workers=workers)),
            reward_loop_workers_class=made,
            reward_router_address=None,
        )
        placement._PlacedRewardLoopManager._init_reward_loop_workers(manager)  # type: ignore[arg-type]
        assert [one["node"] for one in manager.reward_loop_workers] == judging
    assert str(alive_nodes()[0]) == "host-head (10.0.0.1)"


def test_a_node_that_cannot_be_reached_is_named_before_ray_misses_it(monkeypatch):

    with socket.create_server(("127.0.0.1", 0)) as listens, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ports = (listens.getsockname()[1], free.getsockname()[1])
        nodes = [
            Node(id=str(n), host=f"node{n}", address="127.0.0.1", port=port, cpus=4, gpus=1)
            for n, port in enumerate(ports)
        ]
        monkeypatch.setattr(membership, "alive_nodes", lambda: nodes)
        config = OmegaConf.create({"ray_kwargs": {"ray_init": {"address": "10.0.0.1:6379"}}})
        remark = membership.lost(nodes, config)
    assert "Ray has lost node1 (127.0.0.1)" in remark and "node0" not in remark
    assert "ray start --address=10.0.0.1:6379" in remark


# A cluster without the resources of a run is refused with what is missing; verl would wait for ever.

NODE = {"GPU": 8.0, "CPU": 32.0}
HALF = {"GPU": 4, "CPU": 64}
TWO = "trainer.nnodes=2"
BESIDE = "actor_rollout_ref.rollout.nnodes=1 actor_rollout_ref.rollout.n_gpus_per_node=4"


@pytest.mark.parametrize(
    ("overrides", "nodes", "said"),
    [
        ("", [{"GPU": 8, "CPU": 33}], ""),
        (TWO, [NODE, NODE], ""),
        (TWO, [NODE], "1 of the cluster's 1 nodes have trainer.n_gpus_per_node=8 GPUs and 24 CPUs"),
        (TWO, [NODE, HALF, HALF], "1 of the cluster's 3"),
        (TWO, [NODE, {"GPU": 8, "CPU": 8}], "1 of the cluster's 2"),
        (
            "",
            [{"CPU": 2}, {"GPU": 8, "CPU": 24}],
            "reserves 33 CPUs with it, and the cluster has 26 free, so the run would wait for ever; use "
            "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
        ),
        ("", [{"GPU": 8, "CPU": 24}], "more nodes, or fewer GPUs"),
        (
            BESIDE,
            [{"GPU": 8, "CPU": 64}, {"GPU": 2, "CPU": 64}],
            "actor_rollout_ref.rollout.nnodes=1: the trainer and the rollout's own 4 GPUs make 12, and "
            "the cluster has 10 free",
        ),
        (BESIDE, [{"GPU": 8, "CPU": 64}, {"GPU": 4, "CPU": 64}], ""),
    ],
)
def test_gpus_and_cpus_are_needed_together_on_a_node(overrides, nodes, said):
    config = compose_recipe("grpo", ["hardware=gpu_8x", *overrides.split()])
    found = membership.missing_for(config, {str(n): node for n, node in enumerate(nodes)})
    assert said in found if said else found == ""


def test_a_ray_of_the_runs_own_is_not_waited_for(monkeypatch):
    """Nobody else could free anything there."""
    import ray._private.state as state

    few = {"a": {"GPU": 3, "CPU": 4}}
    monkeypatch.setattr(state, "available_resources_per_node", lambda: few)
    monkeypatch.setattr(membership.time, "sleep", lambda _: pytest.fail("waited"))
    cpu = compose_recipe("grpo", ["hardware=cpu"])
    with pytest.raises(ConfigError, match=r"reserves 5 CPUs .* has 4 free.*ray_init\.num_cpus and"):
        membership.check_capacity(cpu, alone=True)
    few["a"]["CPU"] = 5
    membership.check_capacity(cpu, alone=True)


def test_replicas_of_an_evaluation_need_a_gpu_and_two_cpus_on_one_node():
    assert (
        membership.missing_replicas(3, {"a": {"GPU": 1, "CPU": 2}, "b": {"GPU": 2, "CPU": 5}}) == ""
    )
    said = membership.missing_replicas(2, {"a": {"GPU": 2, "CPU": 3}, "head": {"CPU": 64}})
    assert said.startswith("2 replicas need a GPU and 2 CPUs each") and "free for 1;" in said
