"""Imports of other tools' samples as evaluations."""
