"""VirtualControlPlanes: hosted control planes whose pods are mirrored into their tenant's namespace."""
