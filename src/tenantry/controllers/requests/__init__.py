"""Requests with approval: an approved one becomes a Tenant, a RoleBinding or a ClusterRoleBinding (E16)."""
