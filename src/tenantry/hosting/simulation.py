"""Simulated nodes: who simulates them, and how a Node is one of them. Pure.

Source: kwok, "Node" (managed by annotation).
"""

USER = "tenantry:kwok"
"""The user name of the program that simulates nodes."""

MARK, MARKED = "kwok.x-k8s.io/node", "fake"
"""The annotation of a simulated Node, and its value."""
