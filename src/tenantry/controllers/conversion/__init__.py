"""Moves the objects of a tenant from the API server of the cluster to a control plane of its own."""
