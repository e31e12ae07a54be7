"""Tenantry: Kubernetes multitenancy with one Tenant API, where isolation is a field."""

__version__ = "0.1.0"
