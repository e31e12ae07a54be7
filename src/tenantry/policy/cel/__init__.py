"""The part of the Common Expression Language that the mutating policies of Tenantry use."""
