"""Shared by all recipes, without verl: composition, checks, runs, sweeps, the pipeline and the demo."""
