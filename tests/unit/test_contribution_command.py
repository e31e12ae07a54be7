"""X03: what `tenantry node contribute --capacity` refuses before it asks a cluster."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tenantry.api.errors import InputError
from tenantry.cli.local.contribution import contribute, join, record, take_back

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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "prod"], "--to 'prod' must be NAMESPACE/NAME"),
        (["--to", "a/b/c"], "must be NAMESPACE/NAME"),
        (["--to", "acme/prod", "--tenant", "acme"], "--tenant must not be given with --to"),
        (["--to", "acme/prod", "--capacity", "cpu=4"], "--capacity must not be given with --to"),
        (["--to", "acme/prod", "--valid", "2h"], "--valid must not be given with --to"),
        (["--to", "acme/prod"], "--to needs --address and --pod-cidr"),
        (["--to", "acme/prod", "--pod-cidr", "10.1.0.0/24", "--pod-cidr", "10.2.0.0/24"], "must be given once"),
    ],
)
def test_a_machine_for_a_cluster_of_a_tenant_is_described_in_full(arguments: list[str], said: str) -> None:
    """H04: options about nodes of the host would have no effect."""
    result = CliRunner().invoke(contribute, [*UNREAD, *arguments])
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)


def test_a_node_of_a_tenants_cluster_is_taken_back_from_it() -> None:
    """H04: the host does not know the node."""
    result = CliRunner().invoke(take_back, [*UNREAD, "outside-abc123"])
    assert isinstance(result.exception, InputError)
    assert "name it with --from" in str(result.exception)


def test_a_machine_joins_a_cluster_with_all_that_was_printed() -> None:
    """H04: with a part of it, it would join the host."""
    token = ["--token", "abcdef.0123456789abcdef"]
    for given in (
        ["--node", "outside-abc123"],
        ["--plane", "u"],
        ["--address", "10.0.0.1", "--node", "outside-abc123"],
    ):
        result = CliRunner().invoke(join, [*token, *given])
        assert isinstance(result.exception, InputError)
        assert "must be given together" in str(result.exception)
    result = CliRunner().invoke(join, [*token, "--node", "real-1", "--plane", "u", "--address", "10.0.0.1"])
    assert isinstance(result.exception, InputError)
    assert "--node 'real-1' must be the name" in str(result.exception)
