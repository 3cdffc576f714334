"""Problems as Harbor tasks (`exporting`); `harbor.loader` reads tasks as problems.

`verifier` and `inner` are copied into each exported task with the rules they judge by, and run there.
"""
