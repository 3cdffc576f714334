"""Comparisons of evaluations, problem by problem."""
