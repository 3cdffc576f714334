"""What samples come to: pass@k, budgets, intervals, tests of differences."""
