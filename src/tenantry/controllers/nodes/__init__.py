"""Advertises the bandwidth of nodes, and keeps their addresses out of the tenants' reach."""
