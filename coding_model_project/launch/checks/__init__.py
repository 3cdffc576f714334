"""Refusals by key, before verl is imported."""
