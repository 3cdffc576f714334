"""The export of problems as Harbor tasks (`exporting`). `harbor.loader` does the reverse.

`verifier` is copied into each exported task with what it imports, and runs there.
"""
