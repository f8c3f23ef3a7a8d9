"""Making federated data from one data set, for studies and tests."""
