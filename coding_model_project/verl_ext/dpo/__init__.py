"""DPO on verl's engines."""
