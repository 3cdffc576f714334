"""What the kernel takes from a process, and that nothing outlives who started it."""
