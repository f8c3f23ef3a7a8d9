"""How orders reach sites: in process, in worker processes, in Ray actors, or from a record."""
