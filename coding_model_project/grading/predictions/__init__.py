"""The grader of predictions of a function's value, or of an input for which it returns a given value."""
