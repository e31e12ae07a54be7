"""Explanations of quota and access. Pure."""
