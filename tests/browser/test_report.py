"""The report in a real browser: what a reader sees and does, from a file, with no network."""

import json

import pytest
from selenium.common.exceptions import NoSuchElementException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from coding_model_project.evaluation.comparison import Side, compare
from coding_model_project.evaluation.results import read_evaluation
from coding_model_project.reports import write_report
from coding_model_project.reports.charts import Line
from coding_model_project.reports.page import write_plot
from coding_model_project.runs.folder import RunFolder
from tests.browser.conftest import Page, opened
from tests.synthetic_evaluations import write_evaluation
from tests.synthetic_runs import rollout, training, training_metrics, write_run

pytestmark = pytest.mark.browser

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """Two trainings, with one hostile sample at the last step of the first."""
    folder = tmp_path_factory.mktemp("runs")
    runs = []
    for seed, gain in ((1, 0.5), (2, 0.2)):
        rows = training(n_steps=20, seed=seed, gain=gain)
        metrics = training_metrics(rows, seed)
        if seed == 1:
            failed = {"error": "wrong_answer", "detail": HOSTILE, "failed_test": 3}
            rows.append(rollout(step=20, problem="evil/1", completion=HOSTILE, verdict=failed))
        runs.append(write_run(folder / f"grpo-{seed}", rollouts=rows, metrics=metrics, seed=seed))
    return write_report([RunFolder(run) for run in runs], folder / "report.html").path


@pytest.fixture
def page(browser, two_runs):
    with opened(browser, two_runs.as_uri()) as page:
        yield page


def n_found(page):
    return int(page.text("#count").split()[0].replace(",", ""))


def test_nothing_is_asked_of_a_network(page):
    messages = [json.loads(row["message"])["message"] for row in page.driver.get_log("performance")]
    requests = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    urls = [params["request"]["url"] for params in requests]
    assert urls
    assert all(url.startswith(("file:", "data:", "blob:")) for url in urls), urls


def test_charts_are_drawn(page):
    titles = [figure.text for figure in page.all("figure h3")]
    assert titles[:5] == [
        *("Accepted, training", "Accepted, by source", "Accepted, validation"),
        *("Mean reward", "Mean reward, by source"),
    ]
    assert len(titles) == 13 and titles[-1] == "Where the time went: grpo-2"
    assert all(
        chart.find_elements(By.CSS_SELECTOR, "svg .trace") for chart in page.all("figure .chart")
    )
    assert page.text("figure .legend") == "grpo-1\ngrpo-2"
    assert "95% interval" in page.text("figure figcaption")
    assert "Loss" in page.text("#missing-charts")


def test_values_under_the_pointer(page):
    assert not page.one(".hover").is_displayed()
    page.point_at("figure circle:nth-of-type(3)", "pointermove")
    title, first, second = page.text(".hover").split("\n")
    assert title == "step 3"
    assert first.startswith("grpo-1: ")
    assert "% (95% interval" in second


def test_values_of_a_chart_as_a_table(page):
    page.click("figure summary")
    page.wait(lambda: len(page.all("figure table tr")) == 21)
    assert page.text("figure table tr") == "step grpo-1 grpo-2"


def test_searching_and_filtering_change_the_list(page):
    total = n_found(page)
    page.search("window.hacked", "1 sample")
    page.click("#filters button[type=reset]")
    page.wait(lambda: n_found(page) == total)

    counts = {}
    for verdict in ("accepted", "*", "timeout", "public"):
        Select(page.one("#f-verdict")).select_by_value(verdict)
        page.wait(lambda: n_found(page) != total)
        counts[verdict] = n_found(page)
        page.click("#filters button[type=reset]")
        page.wait(lambda: n_found(page) == total)
    assert counts["accepted"] + counts["*"] == total
    assert 0 < counts["timeout"] < counts["*"]

    Select(page.one("#f-run")).select_by_visible_text("grpo-2")
    page.wait(lambda: n_found(page) == (total - 1) // 2)
    Select(page.one("#f-split")).select_by_value("validation")
    page.wait(lambda: n_found(page) == 5 * 16)
    page.one("#f-from").send_keys("20")
    page.wait(lambda: n_found(page) == 16)
    page.one("#f-problem").send_keys("tinycode/83")
    page.wait(lambda: page.text("#count") == "1 sample")


def test_the_list_is_paged(page):
    total = n_found(page)
    assert len(page.all("#list li")) == 50
    assert page.text("#pager span") == f"1–50 of {total:,}"
    page.click("#pager button:last-child")
    assert page.text("#pager span") == f"51–100 of {total:,}"
    assert len(page.all("#list li")) == 50


def test_a_sample_shows_its_code_and_failing_test(page):
    Select(page.one("#f-verdict")).select_by_value("runtime_error")
    page.wait(lambda: "runtime error" in page.text("#list li"))
    page.click("#list button")
    detail = page.one("#detail")
    assert "for value in values" in page.text("#detail .code")
    keywords = [token.text for token in page.all("#detail .tok-keyword")]
    assert keywords[:2] == ["def", "for"]
    assert "Failing test: hidden test" in detail.text
    assert page.text("#detail .failing") == "line 4: ZeroDivisionError: division by zero"
    assert "Write f(values)" in page.text("#detail .prompt")
    code, failing = page.one("#detail .code").rect, page.one("#detail .failing").rect
    assert failing["x"] > code["x"] + code["width"]  # side by side


def test_hostile_text_is_shown_as_text(page):
    page.search("window.hacked", "1 sample")
    page.click("#list button")
    assert page.text("#detail .code") == HOSTILE
    assert page.text("#detail .failing") == HOSTILE
    assert page.script("return window.hacked === undefined")
    with pytest.raises(NoSuchElementException):
        page.one("img")


def test_a_problem_is_followed_over_training(page):
    page.one("#f-problem").send_keys("tinycode/0")
    page.click("#follow")
    page.wait(lambda: page.one("#history").is_displayed())
    assert page.text("#history-title") == "tinycode/0 over training"
    rows = [row.text.split() for row in page.all("#history-table tr")[1:]]
    # 16 of 80 problems a step: the first comes at steps 1, 6, 11 and 16, in both runs.
    assert [(row[0], row[1]) for row in rows] == [
        (step, run) for step in ("1", "6", "11", "16") for run in ("grpo-1", "grpo-2")
    ]
    assert all(row[3:5] == ["of", "8"] for row in rows)
    assert len(page.all("#history-chart .trace")) == 2
    assert n_found(page) == 4 * 2 * 8
    page.click("#history-table .chip")
    assert "tinycode/0, step 1" in page.text("#detail h3")
    page.click("#history-close")
    assert not page.one("#history").is_displayed()


def test_a_sample_leads_to_its_problem(page):
    page.click("#list button")
    page.click("#detail .follow-sample")
    assert page.text("#history-title") == "tinycode/80 over training"


def test_keyboard_only(page):
    first = page.one("#list button")
    page.script("arguments[0].focus()", first)
    first.send_keys(Keys.ARROW_DOWN)
    second = page.driver.switch_to.active_element
    listed = page.all("#list button")[1]
    assert second.get_attribute("data-sample") == listed.get_attribute("data-sample")
    second.send_keys(Keys.ENTER)
    assert page.all("#detail .code, #detail .empty")
    assert page.script("return document.activeElement.id") == "detail"


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_no_width_scrolls_the_page_sideways(page, width):
    page.resize(width)
    page.one("#f-problem").send_keys("tinycode/0")
    page.click("#follow")
    page.click("#list button")
    for details in page.all("details"):
        page.script("arguments[0].open = true", details)
    page.wait(lambda: page.script("return document.documentElement.scrollWidth") <= width)
    # The charts fit too: what sticks out would be cut off.
    page.wait(
        lambda: page.script(
            "return [...document.querySelectorAll('.chart svg')]"
            ".every((svg) => svg.getBoundingClientRect().right <= innerWidth)"
        )
    )


def test_dark_scheme(page):
    def colours():
        return page.script(
            "const paint = document.querySelector('figure .xtick text');"
            "return [getComputedStyle(document.body).backgroundColor, getComputedStyle(paint).fill]"
        )

    light = colours()
    page.scheme("dark")
    page.wait(lambda: colours()[0] != light[0] and colours()[1] != light[1])
    red, green, blue = (int(part) for part in colours()[0][4:-1].split(","))
    assert max(red, green, blue) < 60


def test_a_run_without_samples(browser, tmp_path):
    metrics = {1: {"train/loss": 1.0}}
    run = write_run(tmp_path / "sft", recipe="sft", metrics=metrics, exit_code=None)
    path = write_report([RunFolder(run)], tmp_path / "r.html").path
    with opened(browser, path.as_uri()) as page:
        assert [title.text for title in page.all("figure h3")] == ["Loss"]
        assert page.text("#statement") == "No samples were recorded."
        assert page.text(".state") == "running"
        assert not page.all("#list")


def test_a_study_and_a_comparison_are_drawn_too(browser, tmp_path):
    arms = [
        Line(label=arm, steps=[1, 2], values=[0.1, 0.5], low=[0.0, 0.4], high=[0.2, 0.6])
        for arm in ("old", HOSTILE)
    ]
    run = write_run(tmp_path / "grpo", metrics={1: {"judge/accepted": 0.5}})
    report = write_report([RunFolder(run)], tmp_path / "r.html", arms=arms).path
    page = Page(browser, report.as_uri())
    assert page.text("figure h3") == "Accepted, by arm"
    assert page.text("figure .legend") == f"old\n{HOSTILE}"
    assert len(page.one("figure").find_elements(By.CSS_SELECTOR, ".trace .band")) == 2

    evil = "<img src=x>"
    for name, solved in (("before", 10), (evil, 24)):
        outcomes = {"<i>toy": {f"{n}": [n < solved] for n in range(40)}}
        write_evaluation(tmp_path / name, outcomes, model=name)
    sides = [
        Side(name=name, seeds=(read_evaluation(tmp_path / name),)) for name in ("before", evil)
    ]
    write_plot(compare(sides), tmp_path / "compared.html")
    page = Page(browser, (tmp_path / "compared.html").as_uri())
    assert [title.text for title in page.all("figure h3")] == ["pass@1", "Difference"]
    assert len(page.all("rect.point")) == 2
    assert f"<i>toy: {evil} − before" in [tick.text for tick in page.all(".ytick text")]
    assert not page.all("img")
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


# ── an episode's timeline ─────────────────────────────────────────────────────────────────────────


HOSTILE_COMMAND = "echo '</script><img src=x onerror=window.hacked=1>'"


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
            reply(40, 70, HOSTILE_COMMAND, 3, command_s=0.25, reply_s=1.0),
            reply(90, 93, None, None, reply_s=0.5),
        ],
    },
}
OLD = EPISODE | {
    "sample": "b",
    "extra": {"ending": "turns", "replies": [reply(0, 24, "ls\n", 0, command_s=0.5)]},
}


@pytest.fixture(scope="module")
def episodes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    long = [reply(0, 9, "cat log\n", 0, reply_s=1.0, observation="é\n" * 4000)] * 20
    rows = [rollout(**EPISODE), rollout(**OLD), rollout(sample="c")]
    rows.append(rollout(sample="d", extra={"ending": "turns", "replies": long}))
    run = write_run(folder / "harbor", recipe="harbor", rollouts=rows)
    return write_report([RunFolder(run)], folder / "episodes.html").path


@pytest.fixture
def timeline(browser, episodes):
    with opened(browser, episodes.as_uri()) as page:
        yield page


def cells(timeline) -> list[list[str]]:
    rows = timeline.all(".timeline tr")[1:]
    return [[cell.text for cell in row.find_elements("css selector", "td")] for row in rows]


def test_each_turn_has_its_times_and_bars_follow_one_another(timeline):
    timeline.click("#list li:nth-child(1) button")
    first, second, third, last = cells(timeline)
    assert first[2:] == ["2 s", "24", "sort a > b\noutput", "0", "0.5 s"]
    assert (
        second[2:4] == ["1 s", "30"] and second[4].startswith(HOSTILE_COMMAND) and second[5] == "3"
    )
    assert third[2:] == ["0.5 s", "3", "no command", "–", "–"]
    assert last[4:] == ["ended: done; verifier", "", "0.25 s"]
    assert "replies 3.5 s, commands 0.75 s, verifier 0.25 s" in timeline.text("#detail")
    spans = timeline.script(
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
    assert timeline.script("return window.hacked") is None


def test_a_run_from_before_reply_times_opens_and_says_so(timeline):
    timeline.click("#list li:nth-child(2) button")
    first, last = cells(timeline)
    assert first[2] == "–" and first[6] == "0.5 s" and last[4].startswith("ended: turns")
    assert "the time of replies was not recorded, commands 0.5 s" in timeline.text("#detail")


def test_a_long_episode_fits_its_texts_shortened(timeline):
    timeline.click("#list li:nth-child(4) button")
    found = cells(timeline)
    assert len(found) == 21 and "more characters" in timeline.script(
        "return document.querySelector('.timeline pre').textContent"
    )


def test_other_samples_have_none(timeline):
    timeline.click("#list li:nth-child(3) button")
    assert not timeline.all(".timeline")
