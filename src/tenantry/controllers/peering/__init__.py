"""Other clusters: those that run pods of this one, and those whose pods run here."""
