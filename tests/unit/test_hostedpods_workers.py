"""What is reported of Jobs that keep snapshots."""

from __future__ import annotations

import pytest

from tenantry.api.errors import Forbidden
from tenantry.hostedpods import workers


@pytest.mark.parametrize(
    ("message", "names_rights"),
    [
        ('jobs.batch is forbidden: User "operator" cannot create resource "jobs" in API group "batch"', True),
        ('jobs.batch "hosted-1-data" is forbidden: exceeded quota: jobs, requested: count/jobs.batch=1', False),
    ],
)
def test_the_installation_is_named_only_if_rights_are_missing(message: str, *, names_rights: bool) -> None:
    """H02: a quota of an administrator does not change with an installation."""
    found = workers.refusal("the volume", Forbidden(message))
    assert ("tenantry install" in found, message in found) == (names_rights, True)
