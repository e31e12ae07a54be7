"""Gives tenants parts of nodes, each as large as was asked for, beside the parts of others."""
