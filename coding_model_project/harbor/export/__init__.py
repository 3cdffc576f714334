"""The export of problems as Harbor tasks (`exporting`). `harbor.loader` does the reverse.

`verifier` and `inner` are copied into each exported task with their judging rules, and run there.
"""
