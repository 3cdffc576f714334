"""One HTML page about one run or several: curves, errors, time, cost, and the samples themselves.

tally.py      rollouts → sums per step and problem, in one pass
lines.py      sums and metrics → the lines and stacks of the charts
header.py     a run's folder → what stands above the charts
selection.py  which samples the page holds, if not all fit
samples.py    chosen rollouts → the table the page reads
page.py       all of it → the HTML file; page.html, .css and .js are its parts
"""

from __future__ import annotations

from coding_model_project.reports.page_data import Written
from coding_model_project.reports.run_page import BUDGET_BYTES, write_report

__all__ = ["BUDGET_BYTES", "Written", "write_report"]
