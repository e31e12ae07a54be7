"""Where users reach the API server of a VirtualControlPlane."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tenantry.api.crd import Rule
from tenantry.api.model import Model

HOST = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$"

ENDPOINT_RULE = Rule(
    # Of the spec: a rule of the field is not evaluated when the field is added or removed.
    "self.?endpoint.?host.orValue('') == oldSelf.?endpoint.?host.orValue('')"
    " && self.?endpoint.?port.orValue(0) == oldSelf.?endpoint.?port.orValue(0)",
    "must not change, because kubeconfigs have it: create another object, and restore a snapshot there",
    field="endpoint",
)
"""Of what has `endpoint`."""


class PlaneEndpoint(Model, frozen=True, kw_only=True):
    """The name and the port of an API server."""

    host: Annotated[
        str,
        Meta(
            max_length=253,
            pattern=HOST,
            description="The DNS name that kubeconfigs and the certificate of the API server have; no other control"
            " plane may have it. You publish it: it must lead to the address that is used without the field.",
        ),
    ] = ""
    port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="The port. On a local cluster, one from 20000 to 32767 that no other program of the machine"
            " has. In Pods, any port of the Service of the control plane; default there: 443. 0: the place chooses.",
        ),
    ] = 0
