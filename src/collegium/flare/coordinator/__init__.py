"""The coordinator's side: a study carried out over sites that only their owners know."""
