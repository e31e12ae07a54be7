"""`tenantry node list`: the command, and the table that it prints."""
