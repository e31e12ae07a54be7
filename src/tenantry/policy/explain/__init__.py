"""Explanations of refusals, and manifests that pass. Pure."""
