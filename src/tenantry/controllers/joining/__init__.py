"""Nodes of the host that join a control plane with nodes of its own, and leave it: inside the control plane."""
