"""The export of problems as Harbor tasks (`exporting`). `harbor.loader` does the reverse.

`verifier` is copied into each exported task with what it imports, and runs there. `running` runs inputs
in processes that `forker` forks and confines.
"""
