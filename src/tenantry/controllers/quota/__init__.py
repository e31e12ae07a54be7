"""Divides a tenant's quota over its tree, so that its sum is never more than the whole."""
