"""Oblivious transfer: a receiver gets one of two secrets and nothing of the other; the sender does not learn which."""
