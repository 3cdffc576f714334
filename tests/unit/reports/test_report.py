"""The report says what the run's files say, shows a fair and fixed choice, and trusts no text."""

import json
import re
from html.parser import HTMLParser

import pytest

import coding_model_project.cli as cli
from coding_model_project.evaluation.intervals import rate_interval
from coding_model_project.reports import write_report
from coding_model_project.reports.chart_lines import RunTally, chart_lines, chart_stacks
from coding_model_project.reports.run_page import run_names
from coding_model_project.reports.sample_selection import ROW_BYTES, Index, choose
from coding_model_project.runs.folder import RunFolder
from coding_model_project.runs.rollouts import Rollout
from tests.pages import packed
from tests.synthetic_runs import rollout, training, training_metrics, write_run

NAN = float("nan")
HOSTILE = (
    '</script><script>window.hacked=1</script><img src=x onerror="hacked=1"><!-- {{ 7*7 }} \u2028'
)


def tally_of(*rows):
    tally = RunTally()
    for row in rows:
        tally.add(Rollout(**rollout(**row)))
    return tally


def failed(error="wrong_answer", **verdict):
    return {"verdict": {"error": error} | verdict}


def index_of(rows):
    index = Index()
    for row in rows:
        index.add(0, Rollout(**row))
    return index


def report(out, *folders, **options):
    written = write_report([RunFolder(folder) for folder in folders], out, **options)
    return written, out.read_text()


# ── numbers ───────────────────────────────────────────────────────────────────────────────────────


def test_rates_are_means_over_problems():
    rows = [{"problem": "p/1"}] * 3 + [{"problem": "p/1", **failed()}]
    [line] = chart_lines(tally_of(*rows), {})["accepted"]  # no interval from one problem
    assert (line.values, line.low, line.high) == ([0.75], [None], [None])
    rows += [{"problem": "p/2", "reward": 0.0, **failed()}]
    lines = chart_lines(tally_of(*rows), {})
    [accepted], [reward] = lines["accepted"], lines["reward"]
    assert (accepted.steps, accepted.values) == ([1], [pytest.approx((0.75 + 0.0) / 2)])
    low, high = rate_interval([0.75, 0.0])
    assert (accepted.low, accepted.high) == ([low], [high])
    assert (reward.low, reward.high) == ([0.0], [1.0])  # either problem may be drawn twice
    assert reward.values == [pytest.approx((1.0 + 0.0) / 2)]


def test_sources_of_a_mixed_run_have_lines_of_their_own():
    rows = [{"problem": "sums/1"}, {"problem": "sums/2", "reward": 0.0, **failed()}]
    alone = chart_lines(tally_of(*rows), {})
    assert not {"accepted_by_source", "reward_by_source"} & alone.keys()
    rows += [{"problem": "code/1", "step": 2, "reward": 0.25, **failed()}]
    mixed = chart_lines(tally_of(*rows), {})
    shown = {line.label: (line.steps, line.values) for line in mixed["accepted_by_source"]}
    assert shown == {"code": ([2], [0.0]), "sums": ([1], [0.5])}
    assert [line.values for line in mixed["reward_by_source"]] == [[0.25], [0.5]]
    assert mixed["accepted_by_source"][1].low == [rate_interval([1.0, 0.0])[0]]


def test_steps_whose_samples_were_not_recorded_come_from_the_metrics():
    logged = {1: {"judge/accepted": 0.9}, 2: {"judge/accepted": 0.4}}
    [line] = chart_lines(tally_of({"problem": "p/1"}, {"problem": "p/2"}), logged)["accepted"]
    assert (line.steps, line.values) == ([1, 2], [1.0, 0.4])
    assert (line.low, line.high) == ([rate_interval([1.0, 1.0])[0], None], [1.0, None])


def test_lengths_parts_and_public_failures():
    rows = [{"tokens": n, "reward_parts": {"a": n / 100}} for n in range(101)]
    rows[0] |= failed(public_passed=True)
    rows[1] |= failed(public_passed=False)
    lines = chart_lines(tally_of(*rows), {})
    [length] = lines["length"]
    assert (length.values, length.low, length.high) == ([50.0], [5.0], [95.0])
    assert lines["parts"][0].values == [pytest.approx(0.5)]
    [public] = lines["public"]
    assert (public.label, public.values) == ("train", [pytest.approx(1 / 101)])
    # Tests that were not run are no zero.
    assert "public" not in chart_lines(tally_of(failed(public_passed=None)), {})


def test_times_add_up_to_the_step():
    data = {"timing_s/gen": 7.0, "judge/wait_s": 2.0, "timing_s/old_log_prob": 1.0}
    data |= {"timing_s/update_actor": 3.0, "timing_s/step": 12.5, "timing_s/testing": 4.0}
    times = chart_stacks(RunTally(), {1: data, 2: {"timing_s/step": 1.0, "judge/wait_s": 9.0}})[
        "times"
    ]
    assert {part: values[0] for part, values in times.parts.items()} == {
        "generation": 5.0,
        "waiting for the judge": 2.0,
        "log-probabilities": 1.0,
        "update": 3.0,
        "rest": 1.5,
        "validation": 4.0,
    }
    assert sum(values[1] for values in times.parts.values()) == 1.0


def test_verdict_shares_from_samples_where_no_metrics_are():
    tally = tally_of({}, failed("memory_limit"), failed("no_code"), failed("runtime_error"))
    errors = chart_stacks(tally, {})["errors"]
    shares = {part: values[0] for part, values in errors.parts.items() if values[0]}
    assert shares == {"accepted": 0.25, "runtime_error": 0.5, "no_code": 0.25}


def test_losses_of_supervised_training(tmp_path):
    losses = ({"train/loss": 0.5}, {"train/loss": 0.4, "val/loss": 0.6}, {"train/loss": NAN})
    run = write_run(tmp_path / "sft", recipe="sft", metrics=dict(enumerate(losses, 1)))
    _, page = report(tmp_path / "r.html", run)
    figure = packed(page, "figures-data")["loss"]
    lines = [(trace["name"], trace["x"], trace["y"]) for trace in figure["data"]]
    assert lines == [("train", [1, 2, 3], [0.5, 0.4, None]), ("validation", [2], [0.6])]
    assert figure["caption"] == "Last: train – at step 3; validation 0.6 at step 2."
    assert "No samples were recorded" in page


# ── which samples ─────────────────────────────────────────────────────────────────────────────────


def test_choice_is_fixed_bounded_and_stratified():
    rows = training(n_steps=20, padding=300)
    index = index_of(rows)
    budget = 400_000
    choice = choose(index, budget)
    assert choice == choose(index_of(rows), budget)
    assert sum(choose(index, 0).shown) == 0
    assert sum(choose(index, 10_000_000).shown) == len(rows)

    shown = [row for row, is_shown in zip(rows, choice.shown, strict=True) if is_shown]
    prompts = {row["problem"]: len(row["prompt"]) for row in shown}
    texts = sum(len(one["completion"] + one["verdict"]["detail"] + one["sample"]) for one in shown)
    assert budget * 0.95 < texts + ROW_BYTES * len(shown) + sum(prompts.values()) <= budget
    assert len(shown) < len(rows) / 2

    strata = {(row["step"], row["split"], row["verdict"]["error"]) for row in rows}
    assert strata == {(row["step"], row["split"], row["verdict"]["error"]) for row in shown}


def test_whole_problems_can_be_followed():
    rows = training(n_steps=20, padding=300)
    choice = choose(index_of(rows), 400_000)
    assert choice.whole
    whole = [n for n, row in enumerate(rows) if row["problem"] in choice.whole]
    assert all(choice.shown[n] for n in whole)
    assert {rows[n]["split"] for n in whole} == {"train", "validation"}


def test_the_page_says_how_many_are_shown(tmp_path, capsys):
    rows = training(n_steps=10)
    run = write_run(tmp_path / "run", rollouts=rows, metrics=training_metrics(rows))
    written, page = report(tmp_path / "r.html", run, budget_bytes=100_000)
    assert 0 < written.n_shown < written.n_total == len(rows)
    assert f"{written.n_shown:,} of {len(rows):,} samples are on this page" in page
    table = packed(page, "samples-data")
    assert len(table["columns"]["step"]) == written.n_shown
    # A problem's history counts all of its samples, shown or not.
    problem = table["problems"].index("tinycode/0")
    counted = sum(n for _, _, _, number, n, _ in table["history"] if number == problem)
    assert counted == sum(row["problem"] == "tinycode/0" for row in rows)

    assert cli.main(["report", str(run), "--out", str(tmp_path / "all.html")]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}/all.html: ")
    assert f"All {len(rows):,} samples are on" in (tmp_path / "all.html").read_text()


def test_long_texts_are_cut_and_say_so(tmp_path):
    run = write_run(tmp_path / "run", rollouts=[rollout(completion="x" * 50_000)])
    _, page = report(tmp_path / "r.html", run)
    [text] = [text for text in packed(page, "samples-data")["texts"] if text.startswith("xx")]
    assert text == "x" * 20_000 + "\n… 30,000 more characters are in rollouts.jsonl"


# ── hostile text ──────────────────────────────────────────────────────────────────────────────────


class Elements(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_hostile_text_stays_text(tmp_path):
    hostile = rollout(
        completion=HOSTILE,
        prompt=HOSTILE,
        problem=HOSTILE,
        sample=HOSTILE,
        extra={"x": HOSTILE},
        reward_parts={HOSTILE: 1.0},
        verdict={"error": "wrong_answer", "detail": HOSTILE, "sandbox": HOSTILE},
    )
    folder = tmp_path / "<img src=x onerror=hacked=1>{{ 7*7 }}"
    run = write_run(folder, recipe=HOSTILE, rollouts=[hostile])
    _, page = report(tmp_path / "r.html", run)
    elements = Elements()
    elements.feed(page)
    tags = [tag for tag, _ in elements.found]
    assert "img" not in tags
    assert tags.count("script") == 2 + 7
    assert not any(name.startswith("on") for _, attributes in elements.found for name in attributes)
    assert packed(page, "samples-data")["texts"].count(HOSTILE) == 1
    figures = packed(page, "figures-data").values()
    names = [trace["name"] for figure in figures for trace in figure["data"]]
    assert HOSTILE in names  # as text: the page's scripts parse no HTML


def test_page_asks_for_nothing_and_runs_its_own_scripts_only(tmp_path):
    _, page = report(tmp_path / "r.html", write_run(tmp_path / "run"))
    elements = Elements()
    elements.feed(page)
    assert not any({"src", "action"} & attributes.keys() for _, attributes in elements.found)
    assert all(a["href"].startswith("#") for _, a in elements.found if "href" in a)
    policy = next(a["content"] for tag, a in elements.found if a.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert "unsafe-inline" not in policy.partition("script-src")[2]


def test_an_evaluation_of_contests_has_its_months_and_the_cut_off(tmp_path):
    run = write_run(tmp_path / "run")
    rate = {"1": {"value": 0.5, "low": 0.25, "high": 0.75, "problems": 4}}
    metrics = {
        "by_month": {"2024-07": rate, "2024-08": rate},
        "cutoff": {"day": "2024-08-01"},
        "pass@k": rate, "pass_ratio": None, "errors": {}, "ungradable": 0, "samples": 8,
    }  # fmt: skip
    (run / "metrics.json").write_text(json.dumps({"livecodebench": metrics}))
    info = {"model": "m", "protocol": {"name": "greedy", "hash": "0"}}
    (run / "run_info.json").write_text(json.dumps(info))
    _, page = report(tmp_path / "r.html", run)
    assert "2024-07: livecodebench 50.0% (25.0% to 75.0%)" in page
    assert "2024-08, cut-off: livecodebench" in page
    assert "pass@1: livecodebench 50.0% (25.0% to 75.0%)" in page
    assert "No recorded data for" not in page, "an evaluation has no curves of a training"


def test_the_header_says_what_a_training_gained(tmp_path):
    rollouts = list(training(n_steps=3))
    run = write_run(tmp_path / "run", rollouts=rollouts, metrics=training_metrics(rollouts))
    _, page = report(tmp_path / "r.html", run)
    share = r"\d+\.\d% at step"
    assert re.search(rf"<dt>accepted</dt><dd>training {share} 1, {share} 3</dd>", page)


def test_an_evaluation_of_instructions_has_the_publishers_accuracies(tmp_path):
    run = write_run(tmp_path / "run")
    strict, loose, each = ({"value": v, "low": 0.1, "high": 0.9} for v in (0.25, 0.5, 0.75))
    metrics = {
        "pass@k": {"1": strict}, "loose": {"pass@k": {"1": loose}, "pass_ratio": loose},
        "readings": {"publisher": {"1": strict}, "ours": {"1": each}, "differ": {}},
        "instructions": {"strict": each, "loose": each, "strict_mean": loose},
        "pass_ratio": None, "errors": {}, "ungradable": 0, "samples": 8,
    }  # fmt: skip
    (run / "metrics.json").write_text(json.dumps({"ifeval": metrics}))
    info = {"model": "m", "protocol": {"name": "greedy", "hash": "0"}}
    (run / "run_info.json").write_text(json.dumps(info))
    _, page = report(tmp_path / "r.html", run)
    ours = "pass@1 this judge&#39;s rule 75.0%"
    for text in ("pass@1 25.0%", ours, "pass@1 loosely 50.0%", "each instruction 75.0%"):
        assert f"{text} (10.0–90.0)" in page
    assert "mean of prompts and instructions 50.0%" in page


# ── what may be missing ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("exit_code", [None, 0, 3, 130])
def test_a_run_with_nothing_in_it(tmp_path, exit_code):
    run = write_run(tmp_path / "run", exit_code=exit_code)
    file = run / "logs" / "attempt_1" / "attempt.json"
    why = {"error": "the <sandbox> is gone"} if exit_code == 3 else {}
    file.write_text(json.dumps(json.loads(file.read_text()) | why))
    written, page = report(tmp_path / "deep" / "r.html", run)
    if exit_code is not None:  # a run at work grows older
        assert page == report(tmp_path / "again.html", run)[1]
    assert (written.n_shown, written.n_total) == (0, 0)
    assert written.page_bytes < 1_000_000
    states = {None: ">running<", 0: ">finished<", 130: ">interrupted<"}
    assert states.get(exit_code, "failed: the &lt;sandbox&gt; is gone") in page
    assert "No metrics and no samples yet" in page


def test_samples_without_metrics(tmp_path):
    run = write_run(tmp_path / "run", rollouts=training(n_steps=2))
    _, page = report(tmp_path / "r.html", run)
    lines = {"accepted", "validation", "reward", "parts", "length", "public"}
    assert packed(page, "figures-data").keys() == lines | {"errors-0", "history"}
    assert "Loss; Could not be judged; Where the time went." in page


def test_runs_of_one_name_are_told_apart(tmp_path):
    folders = [tmp_path / "a" / "grpo", tmp_path / "b" / "grpo"]
    assert run_names([RunFolder(folder) for folder in folders]) == ["a/grpo", "b/grpo"]
    steps = [tmp_path / phase / "train-0a1b2c3d" for phase in ("sft", "grpo")]
    assert run_names([*map(RunFolder, steps)]) == ["sft/train", "grpo/train"]
    runs = [write_run(folder, rollouts=training(n_steps=1)) for folder in folders]
    written, page = report(tmp_path / "r.html", *runs, runs[0])
    traces = packed(page, "figures-data")["accepted"]["data"]
    assert [trace["name"] for trace in traces] == ["a/grpo", "b/grpo"]
    assert packed(page, "samples-data")["runs"] == ["a/grpo", "b/grpo"]
    assert set(packed(page, "samples-data")["columns"]["run"]) == {0, 1}
    assert written.n_total == 2 * len(training(n_steps=1))
