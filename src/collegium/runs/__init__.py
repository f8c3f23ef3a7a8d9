"""One run: `run`, what it comes to, its folder, its record, and who is told of it."""
