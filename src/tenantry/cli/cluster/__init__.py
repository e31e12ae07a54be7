"""`tenantry cluster`: clusters of tenants, with nodes of their own."""
