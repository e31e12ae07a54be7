"""The verbs about local clusters: a file for each."""
