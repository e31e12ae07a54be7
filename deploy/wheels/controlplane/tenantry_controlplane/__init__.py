"""The compressed programs of local clusters; `programs.json` lists them. `tenantry.local.packaged` unpacks them."""
