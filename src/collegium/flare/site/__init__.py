"""A site's own process: its file, its data, its office, and its part in each run."""
