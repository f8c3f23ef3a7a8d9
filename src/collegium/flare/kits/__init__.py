"""Kits: the folders of keys, certificates and addresses that make a federation, and how they are made."""
