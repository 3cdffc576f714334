"""Confinement by the kernel, and children that do not outlive who started them."""
