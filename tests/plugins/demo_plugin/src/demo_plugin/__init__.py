"""Algorithms, a consensus rule, a learner and a local loss for Collegium, in a package of their own."""
