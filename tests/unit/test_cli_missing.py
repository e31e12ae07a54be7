"""Objects that do not exist: the message names the command that lists those that do."""

from __future__ import annotations

import pytest

from tenantry.api.errors import NotFound
from tenantry.cli.refusals import missing


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            'tenants.tenantry.dev "absent" not found',
            'tenants.tenantry.dev "absent" not found; `tenantry get tenants` lists all',
        ),
        (
            'subnamespaces.tenantry.dev "web" not found',
            'subnamespaces.tenantry.dev "web" not found; `tenantry get subnamespaces -A` lists all',
        ),
        (
            'namespaces "absent" not found',
            'namespaces "absent" not found; `tenantry tree` shows the namespaces of tenants',
        ),
        ('pods "web" not found', 'pods "web" not found'),
        ("not found: tenant.tenantry.dev/absent", "not found: tenant.tenantry.dev/absent"),
    ],
)
def test_a_missing_object_names_the_listing(said: str, told: str) -> None:
    """E15."""
    assert str(missing(NotFound(said, status=404))) == told
