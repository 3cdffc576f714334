"""The reward manager for verl, and the judges that its processes share."""
