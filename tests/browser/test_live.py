"""The live view in a real browser: from a curve to a test, linked filters, and a run that goes on."""

import os
import re
import signal
import subprocess
import sys

import orjson
import pytest
from selenium.webdriver.support.ui import Select

from tests.browser.conftest import Page, opened
from tests.synthetic_runs import rollout, training, training_metrics, write_run

pytestmark = pytest.mark.browser

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"


@pytest.fixture
def run(tmp_path):
    rows = training(n_steps=10)
    failed = {"error": "timeout", "detail": HOSTILE, "failed_test": 3}
    rows.append(rollout(step=10, problem=f"evil/{HOSTILE}", completion=HOSTILE, verdict=failed))
    return write_run(tmp_path / "grpo", rollouts=rows, metrics=training_metrics(rows))


@pytest.fixture
def served(run):
    command = [sys.executable, "-m", "coding_model_project", "report", run, "--serve", "--follow"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = server.stdout.readline()
    yield re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+(?=;)", line)[0]
    os.kill(server.pid, signal.SIGINT)
    _, errors = server.communicate(timeout=60)
    assert (server.returncode, errors) == (0, "")


@pytest.fixture
def page(browser, served):
    with opened(browser, served) as page:
        yield page
        browser.get("about:blank")  # it would ask on after its server has ended


def rows(page):
    return [row.text for row in page.all("#table tr")[1:]]


def test_from_a_curve_to_the_tests_of_a_sample(page):
    assert page.text("#count") == "13 steps"
    page.point_at("[data-figure=accepted] circle:nth-of-type(3)", "click")
    page.wait(lambda: page.text("#count") == "16 problems")
    assert "step=3" in page.script("return location.hash")
    page.click("#table a")
    page.wait(lambda: page.text("#count") == "8 samples")
    Select(page.one("[name=error]")).select_by_value("*")
    page.wait(lambda: "accepted" not in page.text("#table"))
    page.click("#table a")
    page.wait(lambda: "Failing test: hidden test" in page.text("#detail"))
    assert "Write f(values)" in page.text("#detail .prompt")
    # The address holds it all: another window shows the same.
    address, shown = page.script("return location.href"), page.text("#detail")
    page.driver.get("about:blank")
    again = Page(page.driver, address)
    again.wait(lambda: again.all("#detail .prompt"))
    assert again.text("#detail") == shown
    again.driver.back()


def test_filters(page):
    page.click("#levels a:nth-child(3)")
    page.wait(lambda: page.text("#count") == f"{10 * 128 + 3 * 16 + 1:,} samples")
    Select(page.one("[name=source]")).select_by_value("evil")
    page.wait(lambda: page.text("#count") == "1 samples")
    page.click("#table a")
    page.wait(lambda: page.all("#detail .failing"))
    assert page.text("#detail .code") == page.text("#detail .failing") == HOSTILE
    assert page.script("return window.hacked === undefined")
    page.click("[type=reset]")
    page.wait(lambda: "1,329" in page.text("#count"))
    page.one("[name=rate_from]").send_keys("100")
    page.wait(lambda: len(rows(page)) > 0 and all("accepted" in row for row in rows(page)))


def test_a_run_that_goes_on(page, run):
    page.script("window.sameDocument = true")
    line = orjson.dumps(rollout(step=11, problem="new/1"))
    with (run / "rollouts.jsonl").open("ab") as file:
        file.write(line[:40])
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 11, "data": {"judge/accepted": 1.0}}\n{"step": 12, "da')
    page.wait(lambda: "at step 11" in page.text("[data-figure=accepted] figcaption"))
    assert page.text("#count") == "13 steps"  # the sample's line is not whole yet
    with (run / "rollouts.jsonl").open("ab") as file:
        file.write(line[40:] + b"\n")
    page.wait(lambda: page.text("#count") == "14 steps")
    assert rows(page)[0].startswith("11 ")
    assert page.script("return window.sameDocument")


@pytest.mark.parametrize("width", [360, 1400])
def test_no_width_scrolls_the_page_sideways(page, width):
    page.resize(width)
    page.click("#levels a:nth-child(3)")
    page.wait(lambda: "samples" in page.text("#count"))
    page.click("#table a")
    page.wait(lambda: page.all("#detail .prompt"))
    page.wait(lambda: page.script("return document.documentElement.scrollWidth") <= width)
