"""Keeps the priority levels and FlowSchemas by which the API server treats tenants fairly."""
