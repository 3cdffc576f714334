"""The only importer of verl and Ray."""
