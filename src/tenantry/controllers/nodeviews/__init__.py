"""Writes the view of each contributed node: the NetworkPolicies and Services that its own pods need."""
