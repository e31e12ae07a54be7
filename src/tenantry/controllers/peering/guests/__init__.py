"""The guest half: a cluster whose pods run here."""
