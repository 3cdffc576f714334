"""Sandboxes for untrusted programs: the protocol (`base`), its conformance suite, two implementations."""
