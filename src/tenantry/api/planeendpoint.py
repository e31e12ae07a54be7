"""Where users reach the API server of a VirtualControlPlane."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tenantry.api.crd import Rule
from tenantry.api.model import Model

HOST = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$"


def _value(of: str, field: str, default: str) -> str:
    # Not by `orValue`, whose result has no longest length that the API server could estimate the cost by.
    return f"(has({of}.endpoint) && has({of}.endpoint.{field}) ? {of}.endpoint.{field} : {default})"


_FIELDS = {"host": "''", "port": "0"}

ENDPOINT_RULE = Rule(
    # Of the spec: a rule of the field is not evaluated when the field is added or removed.
    " && ".join(f"{_value('self', *each)} == {_value('oldSelf', *each)}" for each in _FIELDS.items()),
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


Endpoint = Annotated[PlaneEndpoint, Meta(description="The name and the port of its API server; they must not change.")]
"""The field of a control plane, and of a cluster that has one."""
