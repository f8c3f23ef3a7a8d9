"""How orders reach sites: in process, in worker processes, or from a record."""
