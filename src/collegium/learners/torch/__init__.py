"""Neural networks with the scikit-learn interface, and how they are trained."""
