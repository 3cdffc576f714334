"""Completion → code → executions → verdict → reward. `judge` puts the parts together."""
