"""An algorithm, a consensus rule and a learner for Collegium, in a package of their own."""
