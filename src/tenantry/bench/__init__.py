"""Benchmarks that anyone can run against their own cluster."""
