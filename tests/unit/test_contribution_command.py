"""X03: what `tenantry node contribute --capacity` refuses before it asks a cluster."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tenantry.api.errors import InputError
from tenantry.cli.local.contribution import contribute, record

UNREAD = ["--kubeconfig", "nowhere"]
"""A file that is read only when the API server is asked."""


@pytest.mark.parametrize(
    ("capacity", "said"),
    [
        ("cpu", "'cpu' must be KEY=AMOUNT"),
        ("cpu=0", "'cpu=0' must be KEY=AMOUNT with a positive quantity"),
        ("cpu=-4", "'cpu=-4' must be KEY=AMOUNT"),
        ("cpu=many", "'cpu=many' must be KEY=AMOUNT"),
        ("=4", "'=4' must be KEY=AMOUNT"),
        ("cpu=4,memory", "'memory' must be KEY=AMOUNT"),
        ("pods=20", "a tenant's quota counts no 'pods' of nodes; name cpu or memory"),
        ("cpu=4,cpu=8", "has 'cpu' twice: 4 and 8"),
    ],
)
def test_a_capacity_that_adds_nothing_is_refused(capacity: str, said: str) -> None:
    """X03: an amount that is written down and never counts would look like an agreement."""
    offered = CliRunner().invoke(contribute, [*UNREAD, "--tenant", "acme", "--capacity", capacity])
    corrected = CliRunner().invoke(record, [*UNREAD, "contributed-abc123", "--capacity", capacity])
    for result in (offered, corrected):
        assert isinstance(result.exception, InputError)
        assert said in str(result.exception)


def test_a_capacity_needs_a_tenant() -> None:
    """X03: it adds to the quota of one."""
    result = CliRunner().invoke(contribute, [*UNREAD, "--capacity", "cpu=4"])
    assert isinstance(result.exception, InputError)
    assert "give --tenant, too" in str(result.exception)
