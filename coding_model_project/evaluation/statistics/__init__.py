"""Figures of samples: pass@k, budgets, intervals, tests of differences."""
