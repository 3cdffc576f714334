"""Evaluations of models on Harbor tasks, as jobs that Harbor can read."""
