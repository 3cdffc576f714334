"""Run folders: configuration, provenance, results, and the state for a resume. See docs/read-a-run.md."""
