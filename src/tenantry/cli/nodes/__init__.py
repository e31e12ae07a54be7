"""`tenantry nodes`: the command, and the table that it prints."""
