"""The grader of predictions: what a function returns, or an input for which it returns a given value."""
