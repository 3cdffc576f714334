"""deploy/judge: Kubernetes takes the manifest, and it says what the command line has."""

from __future__ import annotations

import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7
from typer.main import get_command

from coding_model_project.cli.sandbox import app
from coding_model_project.server.gate import _OPEN_PATHS

FOLDER = Path(__file__).parents[3] / "deploy" / "judge"
OBJECTS = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
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


@pytest.mark.parametrize("thing", OBJECTS, ids=lambda thing: thing["kind"])
def test_kubernetes_schemas_accept_it(thing):
    if not _schemas():
        pytest.skip("no schemas: pip install --no-deps kubernetes-validate==1.37.0")
    oldest, newest = _schemas()[0], _schemas()[-1]
    assert [*_faults(thing, oldest), *_faults(thing, newest)] == []
    assert _faults({**thing, "spec": {"replica": 4}}, newest), "a wrong field passes"


def test_its_command_its_probes_and_its_times_are_the_servers():
    command = get_command(app).get_command(None, "serve")  # type: ignore[attr-defined, arg-type]
    known = {option for parameter in command.params for option in parameter.opts}
    args = CONTAINER["args"]
    assert {word for word in args if word.startswith("--")} <= known
    probed = {
        CONTAINER[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("startup", "readiness", "liveness")
    }
    assert probed <= set(_OPEN_PATHS), "a probe has no token"
    drain_s = int(args[args.index("--drain-s") + 1])
    pre_stop_s = int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][-1])
    grace_s = BY_KIND["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > pre_stop_s + drain_s + 2


def test_the_service_is_headless_and_finds_the_judges():
    labels = BY_KIND["Deployment"]["spec"]["template"]["metadata"]["labels"]
    service = BY_KIND["Service"]["spec"]
    assert service["clusterIP"] == "None"
    assert service["selector"].items() <= labels.items()
    (port,) = CONTAINER["ports"]
    assert service["ports"][0]["targetPort"] == port["name"]


def test_the_image_copies_what_is_there_and_names_no_index():
    text = (FOLDER / "Containerfile").read_text()
    root = FOLDER.parents[1]
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M):
        for name in line.split():
            assert (root / name).exists(), name
    assert "://" not in text
