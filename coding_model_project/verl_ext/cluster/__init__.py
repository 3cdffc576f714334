"""Ray clusters: sessions, nodes, checks of nodes, judges on nodes, and workers that start fast."""
