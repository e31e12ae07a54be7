"""Lets nodes in that their owners contribute, and says whose they are."""
