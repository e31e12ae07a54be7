"""The Tenant: a core namespace, its owners' rights, its quota, its isolation.

gather ─► desired.children ─► plan, apply ─► status
"""
