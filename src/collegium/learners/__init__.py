"""Learners: any scikit-learn classifier, and what a study adds around it."""

import collegium.core  # noqa: F401 - the two need each other: whoever comes by this door, too, finds core loaded first
