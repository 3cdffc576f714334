"""Problems as Harbor tasks (`export`); `loaders.harbor` reads tasks as problems.

`check` and `inner` are copied into each exported task with the rules they judge by, and run there.
"""
