"""Processes: start them, keep them running, end them all."""
