"""Keeps the register of whose hosts are."""
