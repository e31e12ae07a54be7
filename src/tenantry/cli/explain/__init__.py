"""`tenantry explain`: a file for each of its commands."""
