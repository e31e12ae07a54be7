"""The version of Kubernetes of the clusters of a test run: `pytest --kubernetes-version`, and what differs on it."""

from __future__ import annotations

import os

import pytest

from tenantry.hosting import versions
from tenantry.hosting.versions import MUTATING_POLICIES
from tenantry.install.fallback import MutationForm
from tenantry.local import build, controlplaneversions
from tenantry.local.cluster import LocalCluster

VARIABLE = "TENANTRY_TEST_KUBERNETES"
KNOWN = controlplaneversions.VERSIONS.known()
OLDEST = KNOWN[0].name


def chosen() -> str:
    """Return the version of the option, as in "1.34"; "" for the default."""
    return os.environ.get(VARIABLE, "")


def form(version: str) -> MutationForm:
    """Return how mutations are carried out on a version; "" for the default."""
    name = controlplaneversions.VERSIONS.find(version).name
    return MutationForm.WEBHOOK if versions.is_before(name, MUTATING_POLICIES) else MutationForm.POLICIES


IS_WEBHOOK = form(chosen()) is MutationForm.WEBHOOK
"""Whether the operator changes objects on the chosen version. Its messages then name any of several wrong keys."""

changes_without_the_operator = pytest.mark.skipif(
    IS_WEBHOOK, reason=f"on Kubernetes {chosen()}, the operator changes objects, and the test stops it or has none"
)
"""A mark of tests; `test_oldest_version.py` has what is refused instead."""


def webhook_flags(cluster: LocalCluster) -> tuple[str, ...]:
    """Return the flags of an operator of a cluster that make it serve the mutations that its API server lacks."""
    spec = cluster.spec()
    if form(spec.kubernetes) is MutationForm.POLICIES:
        return ()
    return ("--webhook-address", f"127.0.0.1:{spec.ports.webhook}")


def why_not_built(version: str) -> str:
    """Return why no cluster of a version can start; "" if one can."""
    if build.built(controlplaneversions.VERSIONS.product(version)) is not None:
        return ""
    command = f"tenantry local build --kubernetes-version {version}"
    return f"the control plane of Kubernetes {version} is not built: run `{command}`"
