"""What cannot work, said by key before verl is imported."""
