"""A public set that the sites make together: noisy counts, a model of them, and rows drawn from it."""
