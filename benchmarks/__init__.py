"""Programs that measure the speed and the size of what Collegium does."""
