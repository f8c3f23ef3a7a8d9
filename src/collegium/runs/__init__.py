"""One run: `run`, its results, folder, record, checks, callbacks and trackers."""
