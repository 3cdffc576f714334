"""Completion → code → executions → verdict → reward. `judge` combines the parts."""
