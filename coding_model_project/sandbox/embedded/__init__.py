"""A sandbox that needs no service: programs forked from a prepared interpreter, isolated by the kernel."""

from coding_model_project.sandbox.embedded.supervisor import EmbeddedSandbox

__all__ = ["EmbeddedSandbox"]
