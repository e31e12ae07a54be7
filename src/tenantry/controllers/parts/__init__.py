"""Allocates parts of shared nodes to tenants, each of the requested size."""
