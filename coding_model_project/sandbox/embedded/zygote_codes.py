"""Exit codes of a test's process that mean something to the supervisor."""

COULD_NOT_CONFINE = 113
OUT_OF_MEMORY = 77
NO_ANSWER = 78
