"""Advertises the bandwidth of nodes, keeps tenants from their addresses, and reports nodes without a record."""
