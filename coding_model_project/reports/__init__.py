"""HTML pages about runs (curves, errors, time, cost, samples) and about comparisons.

chart_lines.py       rollouts → sums per step and problem → the lines and stacks of charts
charts.py            lines, stacks and scores → charts as figures.js draws them
run_charts.py        the charts of a run page; run_charts.yaml has their texts
sample_selection.py  the choice of samples, if not all fit on the page, as the table that it reads
run_page.py          the page about runs: facts, charts and samples
timeline.js          an episode of the bash agent, turn by turn
page.py              a page → the HTML file, and the page of a comparison; shell.html, figure.html,
                     page.css, figures.js and page.js belong to every page, run.html and the other
                     scripts to run pages
live.py              the live view of runs, on live_samples.py
"""

from __future__ import annotations

from coding_model_project.reports.charts import Written
from coding_model_project.reports.run_page import BUDGET_BYTES, write_report

__all__ = ["BUDGET_BYTES", "Written", "write_report"]
