"""Keeps the rules that all tenants share."""
