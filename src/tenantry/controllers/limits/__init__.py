"""Limits of the objects and the trees of all tenants, and what they follow from."""
