"""The `tenantry` command: a file per verb. stdout is data, stderr is talk."""
