"""Learners: any scikit-learn classifier, and what a study adds around it."""

import collegium.core  # noqa: F401 - core and learners import each other: core must be loaded first
