"""Pods that an audit runs, and what they find out."""
