"""Statistics of samples: pass@k, budgets, intervals, significance tests."""
