"""Cluster API: the control planes and the Machines of its Clusters, out of control planes and nodes of this cluster."""
