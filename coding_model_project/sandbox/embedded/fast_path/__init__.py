"""Several tests in one process: off by default, since a program that keeps a state can forge answers."""
