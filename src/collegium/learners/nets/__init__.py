"""The papers' networks, by name."""
