"""What the operator would change: the plans of its controllers without the writes.

ClusterState ─► planners ─► Plan ─► TenantDrift (diff), or the objects that it creates (render)
"""
