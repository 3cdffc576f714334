"""Confinement by the kernel, and child processes that end with their parent."""
