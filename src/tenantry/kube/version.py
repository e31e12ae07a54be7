"""Is this API server new enough?"""

from __future__ import annotations

import re

import msgspec

from tenantry.api.errors import ApiError, ConfigError, NotFound
from tenantry.kube.client import Client

OLDEST = (1, 34)
"""The oldest version with which Tenantry is tested; see docs/reference/versions.md."""

_ADMISSION = "/apis/admissionregistration.k8s.io/v1"


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of /version."""

    git_version: str

    @property
    def minor(self) -> tuple[int, int]:
        """Return (major, minor); (0, 0) for a version that does not read like one."""
        found = re.match(r"v?(\d+)\.(\d+)", self.git_version)
        return (int(found[1]), int(found[2])) if found else (0, 0)


async def require_supported(client: Client) -> ServerVersion:
    """Return the server's version.

    Raises:
        ConfigError: It is older than Tenantry needs.
        Unreachable: The API server does not answer.
        ApiError: It is not an API server.
    """
    try:
        version = msgspec.json.decode(await client.request("GET", "/version"), type=ServerVersion)
    except (NotFound, msgspec.MsgspecError) as error:
        # Every API server has this path, so another kind of server answered: a proxy, or a wrong port.
        connection = client.connection
        raise ApiError(
            f"the server {connection.server} of {connection.source} is not a Kubernetes API server: GET /version has"
            " no version in its answer; check the server's address there"
        ) from error
    if version.minor < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise ConfigError(
            f"the API server {client.connection.server} is Kubernetes {version.git_version!r}; Tenantry needs"
            f" {needed} or newer: upgrade it, or choose another cluster with --context"
        )
    return version


class _ServedKind(msgspec.Struct, frozen=True):
    name: str


class _ServedKinds(msgspec.Struct, frozen=True):
    resources: tuple[_ServedKind, ...] = ()


async def has_mutating_policies(client: Client) -> bool:
    """Return whether an API server has mutating policies; the mutations need a webhook if not.

    Raises:
        ConfigError: It has no validating policies either, without which no rule is enforced.
    """
    try:
        answer = await client.request("GET", _ADMISSION)
        plurals = {each.name for each in msgspec.json.decode(answer, type=_ServedKinds).resources}
    except NotFound:
        plurals = set[str]()
    if "validatingadmissionpolicies" not in plurals:
        raise ConfigError(
            f"the API server {client.connection.server} does not serve ValidatingAdmissionPolicy of"
            " admissionregistration.k8s.io/v1, by which Tenantry enforces rules: remove its --runtime-config or"
            " --feature-gates that turn it off, or choose another cluster with --context"
        )
    return "mutatingadmissionpolicies" in plurals
