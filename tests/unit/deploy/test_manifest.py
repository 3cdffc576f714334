"""deploy: Kubernetes and promtool take what it has, which names options and metrics that a judge has."""

import configparser
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from jsonschema import Draft7Validator
from prometheus_client.parser import text_string_to_metric_families
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7
from typer.main import get_command

from coding_model_project.cli.sandbox import app
from coding_model_project.server.app import _OPEN_PATHS, Measures
from coding_model_project.server.listening import Admission

FOLDER = Path(__file__).parents[3] / "deploy" / "judge"
AUTOSCALED = FOLDER.with_name("judge-autoscaled")
FIXED = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
OBJECTS = [*FIXED, yaml.safe_load((AUTOSCALED / "autoscaler.yaml").read_text())]
BY_KIND = {one["kind"]: one for one in OBJECTS}
CONTAINER = BY_KIND["Deployment"]["spec"]["template"]["spec"]["containers"][0]


@cache
def _schemas() -> list[Path]:
    """The folder of each version's schemas in which unknown fields are errors; none if not installed."""
    found = importlib.util.find_spec("kubernetes_validate")
    if found is None or not found.submodule_search_locations:
        return []
    root = Path(found.submodule_search_locations[0]) / "kubernetes-json-schema"
    return sorted(root.glob("*-strict"))


def _faults(thing: dict[str, Any], folder: Path) -> list[str]:
    group = thing["apiVersion"].split(".")[0].replace("/", "-")
    version = thing["apiVersion"].rpartition("/")[2]
    name = "-".join(dict.fromkeys([thing["kind"].lower(), group.split("-")[0], version]))
    schema = json.loads((folder / f"{name}.json").read_text())

    def retrieve(uri: str) -> Resource[Any]:
        file = folder / uri.rpartition("/")[2].partition("#")[0]
        return DRAFT7.create_resource(json.loads(file.read_text()))

    validator = Draft7Validator(schema, registry=Registry(retrieve=retrieve))  # type: ignore[call-arg]
    return [f"{error.json_path}: {error.message[:200]}" for error in validator.iter_errors(thing)]


@pytest.mark.slow
@pytest.mark.parametrize("thing", OBJECTS, ids=lambda thing: thing["kind"])
def test_kubernetes_schemas_accept_it(thing):
    if not _schemas():
        pytest.skip("no schemas: pip install --no-deps kubernetes-validate==1.37.0")
    oldest, newest = _schemas()[0], _schemas()[-1]
    assert [*_faults(thing, oldest), *_faults(thing, newest)] == []
    assert _faults({**thing, "spec": {"replica": 4}}, newest), "a wrong field passes"


def drain_s(words: list[str]) -> int:
    """Check a command of the server; return its --drain-s."""
    command = get_command(app).get_command(None, "serve")  # type: ignore[attr-defined, arg-type]
    known = {option for parameter in command.params for option in parameter.opts}
    assert words[:2] == ["sandbox", "serve"]
    assert {word for word in words if word.startswith("--")} <= known
    assert words[words.index("--port") + 1] == "8080"
    return int(words[words.index("--drain-s") + 1])


def test_its_command_its_probes_and_its_times_are_the_servers():
    args = CONTAINER["args"]
    for kind in ("startup", "readiness", "liveness"):
        path = CONTAINER[f"{kind}Probe"]["httpGet"]["path"]
        assert path in _OPEN_PATHS, "a probe has no token"
    pre_stop_s = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][-1])
    grace_s = BY_KIND["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > pre_stop_s + drain_s(args) + 2


def test_the_service_is_headless_and_finds_the_judges():
    labels = BY_KIND["Deployment"]["spec"]["template"]["metadata"]["labels"]
    service = BY_KIND["Service"]["spec"]
    assert service["clusterIP"] == "None"
    assert service["selector"].items() <= labels.items()
    (port,) = CONTAINER["ports"]
    assert service["ports"][0]["targetPort"] == port["name"]


def test_a_drain_of_nodes_leaves_judges_and_they_are_spread_over_nodes():
    labels = BY_KIND["Deployment"]["spec"]["selector"]
    assert BY_KIND["PodDisruptionBudget"]["spec"] == {"maxUnavailable": 1, "selector": labels}
    (spread,) = BY_KIND["Deployment"]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == labels


def test_the_autoscaler_is_a_choice_that_removes_the_fixed_number():
    assert "HorizontalPodAutoscaler" not in {one["kind"] for one in FIXED}
    base, overlay = (
        yaml.safe_load((folder / "kustomization.yaml").read_text())
        for folder in (FOLDER, AUTOSCALED)
    )
    assert base["resources"] == ["kubernetes.yaml"]
    assert all((AUTOSCALED / name).exists() for name in overlay["resources"])
    (patch,) = overlay["patches"]
    deployment = BY_KIND["Deployment"]
    assert patch["target"] == {"kind": "Deployment", "name": deployment["metadata"]["name"]}
    assert yaml.safe_load(patch["patch"]) == [{"op": "remove", "path": "/spec/replicas"}]
    assert "replicas" in deployment["spec"], "kustomize removes only what is there"
    scaled = BY_KIND["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (scaled["kind"], scaled["name"]) == tuple(patch["target"].values())


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl")
def test_kustomize_makes_all_objects_without_a_fixed_number():
    command = ["kubectl", "kustomize", str(AUTOSCALED)]
    made = list(yaml.safe_load_all(subprocess.check_output(command, text=True)))
    assert {one["kind"] for one in made} == {one["kind"] for one in OBJECTS}
    (deployment,) = (one for one in made if one["kind"] == "Deployment")
    assert "replicas" not in deployment["spec"]


def _unit(name: str) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, delimiters=["="])
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((FOLDER / name).read_text())
    return unit


def test_the_unit_of_systemd_lets_a_judge_drain():
    service = _unit("judge.service")["Service"]
    program, *words = shlex.split(service["ExecStart"])
    assert program.endswith("/coding-model")
    assert int(service["TimeoutStopSec"]) > drain_s(words) + 2
    assert service["KillMode"] == "mixed", "running programs would get SIGTERM too"


def test_the_quadlet_runs_and_checks_the_image_as_the_image_does():
    unit = _unit("judge.container")
    container = unit["Container"]
    drained_s = drain_s(shlex.split(container["Exec"]))
    arguments = shlex.split(container["PodmanArgs"])
    stop_s = int(arguments[arguments.index("--stop-timeout") + 1])
    assert drained_s + 2 < stop_s < int(unit["Service"]["TimeoutStopSec"])
    image = (FOLDER / "Containerfile").read_text()
    (checked,) = re.findall(r"HEALTHCHECK [^[]*(\[.*\])", image)
    assert shlex.split(container["HealthCmd"]) == json.loads(checked)
    (port, path) = re.findall(r"127\.0\.0\.1:(\d+)(/[\w/]+)", checked)[0]
    assert path in _OPEN_PATHS, "the check has no token"
    assert f"EXPOSE {port}\n" in image
    assert container["PublishPort"].endswith(f":{port}")
    assert container["Secret"].endswith("target=CODING_SANDBOX_TOKEN")


@pytest.mark.parametrize("kind", ["judge", "training"])
def test_the_image_copies_what_is_there_and_names_no_index(kind):
    text = FOLDER.with_name(kind).joinpath("Containerfile").read_text()
    root = FOLDER.parents[1]
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M)
    assert copied
    for name in " ".join(copied).split():
        assert (root / name).exists(), name
    assert "://" not in text.replace("http://127.0.0.1:8080/", "")


# ── monitoring ────────────────────────────────────────────────────────────────────────────────────


MONITORING = Path(__file__).parents[3] / "deploy" / "monitoring"
ALERTS = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"][0]["rules"]
TESTS = yaml.safe_load((MONITORING / "alerts.test.yml").read_text())["tests"]


def metrics() -> str:
    """Return what /metrics of a judge that has answered says."""
    measures = Measures(Admission(1, 1), cast(Any, SimpleNamespace(identity="x")))
    measures.count(cast(Any, SimpleNamespace(status="Success")))
    return measures.text()


def exported() -> set[str]:
    families = text_string_to_metric_families(metrics())
    return {sample.name for family in families for sample in family.samples}


def test_every_metric_is_one_that_a_judge_exports_and_every_one_is_shown():
    texts = "\n".join(file.read_text() for file in MONITORING.iterdir())
    named = set(re.findall(r"\bsandbox_[a-z_]+", texts))
    assert named == {name for name in exported() if not name.endswith("_created")}


def test_every_alert_has_a_test_with_its_text():
    tested = [one for test in TESTS for one in test["alert_rule_test"]]
    by_name = {one["alert"]: one for one in ALERTS}
    assert {one["alertname"] for one in tested if one["exp_alerts"]} == set(by_name)
    for one in tested:
        for expected in one["exp_alerts"]:
            rule = by_name[one["alertname"]]
            assert expected["exp_annotations"] == rule["annotations"]
            assert rule["labels"].items() <= expected["exp_labels"].items()


def test_the_scrape_sends_the_token_to_the_judges_port():
    text = (MONITORING / "prometheus.yml").read_text()
    (scrape,) = yaml.safe_load(text)["scrape_configs"]
    assert scrape["authorization"]["credentials_file"].startswith("/")
    assert f'job="{scrape["job_name"]}"' in ALERTS[0]["expr"]
    assert scrape["static_configs"][0]["targets"][0].endswith(":8080")
    assert yaml.safe_load(text)["rule_files"] == ["alerts.yml"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool")
@pytest.mark.parametrize(
    "words",
    [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts.test.yml"],
        ["check", "config", "--syntax-only", "prometheus.yml"],
        ["check", "metrics"],  # of its input
    ],
)
def test_promtool_accepts_the_rules_the_scrape_and_the_metrics(words):
    options = {"cwd": MONITORING, "input": metrics(), "capture_output": True, "text": True}
    done = subprocess.run(["promtool", *words], **options, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
