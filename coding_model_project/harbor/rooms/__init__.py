"""Rooms: roots of their own that last for a trial, made of namespaces of this machine's kernel."""
