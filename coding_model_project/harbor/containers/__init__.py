"""Environments in containers of a container engine."""
