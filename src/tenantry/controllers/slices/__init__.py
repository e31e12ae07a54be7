"""Allocates whole nodes to tenants: reserves, drains, binds, cleans and releases them."""
