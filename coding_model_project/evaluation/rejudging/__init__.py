"""Stored completions judged by today's grader: evaluations, and the rollouts of trainings."""
