"""`tenantry import`: the command, the reading of what another tool created, and the adoption of its namespaces."""
