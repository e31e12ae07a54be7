"""`tenantry describe`: a page for each kind."""
