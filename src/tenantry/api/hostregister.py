"""HostRegister: whose the hosts of Ingresses, Gateways and routes are, so that none has two tenants.

The operator alone writes them, and a policy in the API server reads them as its parameters. Hosts are spread over
several objects by a digest, so that none becomes too large.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from tenantry.api.crd import Column, Names, Rule
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import KubernetesObject, Model, Resource

NAME_PATTERN = "^[0-9a-f]$"


class Holder(Model, frozen=True, kw_only=True):
    """Who has a host."""

    tenant_uid: Annotated[str, Meta(description='Of the Tenant; "" where the namespace is of no tenant.')] = ""
    namespace: Annotated[str, Meta(description="Where the oldest object is that has the host.")]


Holders = dict[str, Holder]


class HostRegisterSpec(Model, frozen=True, kw_only=True):
    """Hosts, and who has them."""

    hosts: Annotated[Holders, Meta(description="Host to who has it.")] = {}
    wildcards: Annotated[Holders, Meta(description="Host that begins with *. to who has it.")] = {}


class HostRegister(KubernetesObject, frozen=True, kw_only=True):
    """A part of all hosts, and who has them; Tenantry alone writes it."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "hostregisters", "HostRegister", namespaced=False)
    names: ClassVar[Names] = Names(singular="hostregister", short=("hosts",), categories=())
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(f"self.metadata.name.matches('{NAME_PATTERN}')", "must be one hexadecimal digit", field="metadata.name"),
    )
    columns: ClassVar[tuple[Column, ...]] = (Column("Age", "date", ".metadata.creationTimestamp"),)

    spec: HostRegisterSpec
