"""HTML pages about runs (curves, errors, time, cost, samples) and about comparisons.

tally.py             rollouts → sums per step and problem, in one pass
chart_lines.py       sums and metrics → the lines and stacks of charts
charts.py            lines, stacks and scores → charts as figures.js draws them
run_charts.py        the charts of a run page and their texts
header.py            a run's folder → the facts above the charts
sample_selection.py  the choice of samples, if not all fit on the page
sample_columns.py    chosen rollouts → the table that the page reads
run_page.py comparison_page.py       the pages, assembled from the above
timeline.js          an episode of the bash agent, turn by turn
page.py              a page → the HTML file; shell.html, figure.html, page.css, figures.js and page.js
                     belong to every page, run.html and the other scripts to run pages
"""

from __future__ import annotations

from coding_model_project.reports.page_data import Written
from coding_model_project.reports.run_page import BUDGET_BYTES, write_report

__all__ = ["BUDGET_BYTES", "Written", "write_report"]
