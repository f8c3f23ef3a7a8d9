"""Cryptographic protocols as orders: sites meet, and compute together what the coordinator may see and no more."""
