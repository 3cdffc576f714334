"""HTML pages: about one run or several, with curves, errors, time, cost and samples; about a comparison.

tally.py             rollouts → sums per step and problem, in one pass
chart_lines.py       sums and metrics → the lines and stacks of charts
charts.py            lines, stacks and scores → what figures.js draws: every chart of every page
run_charts.py        which charts a run page has, and their words
header.py            a run's folder → what stands above the charts
sample_selection.py  which samples the page holds, if not all fit
sample_columns.py    chosen rollouts → the table the page reads
run_page.py comparison_page.py       all of it → a page
timeline.js          an episode of the bash agent, turn by turn
page.py              a page → the HTML file; shell.html, figure.html, page.css, figures.js and page.js are
                     parts of every page, run.html and the other scripts of a run's
"""

from __future__ import annotations

from coding_model_project.reports.page_data import Written
from coding_model_project.reports.run_page import BUDGET_BYTES, write_report

__all__ = ["BUDGET_BYTES", "Written", "write_report"]
