"""Is this API server new enough?"""

from __future__ import annotations

import re

import msgspec

from tenantry.api.errors import ApiError, ConfigError, NotFound
from tenantry.kube.client import Client

OLDEST = (1, 36)
"""MutatingAdmissionPolicy is v1 from here on."""


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
            f" {needed} or newer (MutatingAdmissionPolicy v1): upgrade it, or choose another cluster with --context"
        )
    return version
