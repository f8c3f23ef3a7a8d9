"""The one typed configuration of a run: its TOML, its parts, its data, and a rehearsal of it."""
