"""All that touches verl and Ray."""
