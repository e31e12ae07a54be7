"""Requests that people approve: a Tenant, a RoleBinding or a ClusterRoleBinding is made of an approved one (E16)."""
