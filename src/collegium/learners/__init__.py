"""Learners: any scikit-learn classifier as it is, and what a study adds around it."""
