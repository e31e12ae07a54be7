"""`tenantry bench federation`: what it costs to run pods and namespaces at peers, beside the same writes alone."""
