"""An episode's timeline in the report: each turn, its times and how it ended; runs without times too."""

from __future__ import annotations

import pytest

from coding_model_project.reports import write_report
from coding_model_project.runs.folder import RunFolder
from tests.browser.open_page import Page
from tests.synthetic_runs import rollout, write_run

pytestmark = pytest.mark.browser

HOSTILE = "echo '</script><img src=x onerror=window.hacked=1>'"


def reply(start: int, end: int, command: str | None, code: int | None, **more) -> dict:
    told = None if command is None else f"exit code {code}"
    reply = {"start": start, "end": end, "command": command, "exit_code": code, "observation": told}
    return reply | {"command_s": 0.0} | more


EPISODE = {
    "problem": "tinyshell/test-0001",
    "sample": "a",
    "verdict": {"judge_s": 0.25, "extraction": "agent"},
    "extra": {
        "ending": "done",
        "replies": [
            reply(0, 24, "sort a > b\n", 0, command_s=0.5, reply_s=2.0),
            reply(40, 70, HOSTILE, 3, command_s=0.25, reply_s=1.0),
            reply(90, 93, None, None, reply_s=0.5),
        ],
    },
}
OLD = EPISODE | {
    "sample": "b",
    "extra": {"ending": "turns", "replies": [reply(0, 24, "ls\n", 0, command_s=0.5)]},
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    long = [reply(0, 9, "cat log\n", 0, reply_s=1.0, observation="é\n" * 4000)] * 20
    rows = [rollout(**EPISODE), rollout(**OLD), rollout(sample="c")]
    rows.append(rollout(sample="d", extra={"ending": "turns", "replies": long}))
    run = write_run(folder / "harbor", recipe="harbor", rollouts=rows)
    return write_report([RunFolder(run)], folder / "report.html").path


@pytest.fixture
def page(browser, report):
    opened = Page(browser, report.as_uri())
    yield opened
    errors = [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    assert not errors, errors


def cells(page) -> list[list[str]]:
    rows = page.all(".timeline tr")[1:]
    return [[cell.text for cell in row.find_elements("css selector", "td")] for row in rows]


def test_each_turn_has_its_times_and_bars_follow_one_another(page):
    page.click("#list li:nth-child(1) button")
    first, second, third, last = cells(page)
    assert first[2:] == ["2 s", "24", "sort a > b\noutput", "0", "0.5 s"]
    assert second[2:4] == ["1 s", "30"] and second[4].startswith(HOSTILE) and second[5] == "3"
    assert third[2:] == ["0.5 s", "3", "no command", "–", "–"]
    assert last[4:] == ["ended: done; verifier", "", "0.25 s"]
    assert "replies 3.5 s, commands 0.75 s, verifier 0.25 s" in page.text("#detail")
    spans = page.script(
        "return [...document.querySelectorAll('.track > span')].map((bar) => {"
        " const box = bar.getBoundingClientRect(), track = bar.parentNode.getBoundingClientRect();"
        " return [bar.className, (box.left - track.left) / track.width, box.width / track.width]; })"
    )
    assert [name for name, *_ in spans] == [
        *("bar-reply", "bar-command", "bar-reply", "bar-command", "bar-reply", "bar-verifier")
    ]
    ends = [left + width for _, left, width in spans]
    assert [left for _, left, _ in spans] == pytest.approx([0.0, *ends[:-1]], abs=0.01)
    assert ends[-1] == pytest.approx(1.0, abs=0.01)
    assert page.script("return window.hacked") is None


def test_a_run_from_before_reply_times_opens_and_says_so(page):
    page.click("#list li:nth-child(2) button")
    first, last = cells(page)
    assert first[2] == "–" and first[6] == "0.5 s" and last[4].startswith("ended: turns")
    assert "the time of replies was not recorded, commands 0.5 s" in page.text("#detail")


def test_a_long_episode_fits_its_texts_shortened(page):
    page.click("#list li:nth-child(4) button")
    found = cells(page)
    assert len(found) == 21 and "more characters" in page.script(
        "return document.querySelector('.timeline pre').textContent"
    )


def test_other_samples_have_none(page):
    page.click("#list li:nth-child(3) button")
    assert not page.all(".timeline")
