"""Samples that other tools generated, as evaluations of ours."""
