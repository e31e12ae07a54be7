"""`tenantry peer`: the commands that connect clusters."""
