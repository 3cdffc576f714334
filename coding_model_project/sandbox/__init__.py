"""Where untrusted programs run: the protocol (`base`), its conformance suite, and two that keep it."""
