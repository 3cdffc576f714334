"""Rooms: environments with their own root, made of this machine's namespaces for one trial."""
