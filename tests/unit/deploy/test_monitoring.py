"""deploy/monitoring: it names the metrics that a judge exports, and promtool accepts its rules."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from coding_model_project.server.app import Measures
from coding_model_project.server.listening import Admission

FOLDER = Path(__file__).parents[3] / "deploy" / "monitoring"
ALERTS = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
TESTS = yaml.safe_load((FOLDER / "alerts.test.yml").read_text())["tests"]


def metrics() -> str:
    """Return what /metrics of a judge that has answered says."""
    measures = Measures(Admission(1, 1), cast(Any, SimpleNamespace(identity="x")))
    measures.count(cast(Any, SimpleNamespace(status="Success")))
    return measures.text()


def exported() -> set[str]:
    families = text_string_to_metric_families(metrics())
    return {sample.name for family in families for sample in family.samples}


def test_every_metric_is_one_that_a_judge_exports_and_every_one_is_shown():
    texts = "\n".join(file.read_text() for file in FOLDER.iterdir())
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
    text = (FOLDER / "prometheus.yml").read_text()
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
    options = {"cwd": FOLDER, "input": metrics(), "capture_output": True, "text": True}
    done = subprocess.run(["promtool", *words], **options, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
