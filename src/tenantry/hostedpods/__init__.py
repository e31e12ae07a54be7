"""Hosted control planes in Pods of an existing cluster: their image, their objects, and what starts and ends them."""
