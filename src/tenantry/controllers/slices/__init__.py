"""Gives tenants nodes of their own: sets them aside, has others leave, and takes them back."""
