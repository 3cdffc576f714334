"""Rejudging of evaluations and of training runs' rollouts with the current grader."""
