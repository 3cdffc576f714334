"""Languages other than Python in the embedded sandbox."""
