"""Checks of data sets for grading, and selection of tests that distinguish right from wrong programs."""
