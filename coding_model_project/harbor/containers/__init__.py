"""Environments that are an engine's containers."""
