"""Completion of words by shells and by kubectl."""
