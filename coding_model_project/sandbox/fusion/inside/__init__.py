"""The part of the client that runs inside a server: `lean` loads it, `driver` runs programs."""
