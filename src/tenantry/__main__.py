"""`python -m tenantry` is the `tenantry` command."""

from tenantry.cli.main import main

main()
