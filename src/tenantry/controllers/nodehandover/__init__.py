"""Takes nodes of slices from the host for clusters of tenants, and gives them back."""
