"""What an older version installed: parameters of policies that are copied, and objects that are deleted. Pure.

    1. ConfigMaps ─► PolicyParameters     the policies in force still read ConfigMaps
    2. the policies, and the canary       they read PolicyParameters, which exist
    3. ConfigMaps are deleted             no policy reads them
       retired policies are deleted       others, which are in force, refuse the same

So a rule is in force at each moment, whichever version of the operator runs. An operator of the older version does not
touch PolicyParameters, and one of this version does not touch the ConfigMaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec
from msgspec.structs import replace

from tenantry.api.errors import ConfigError, InputError
from tenantry.api.hostregister import HOSTS_MARK, PREFIX, WILDCARDS
from tenantry.api.kubernetes import Namespace
from tenantry.api.marks import (
    INHERITED_FROM,
    KIND,
    KIND_SUBTENANT,
    KIND_WORKSPACE,
    MANAGED_BY,
    MANAGER,
    SYSTEM_NAMESPACE,
    TENANT_UID,
    ZONE,
)
from tenantry.api.model import KubernetesObject, ObjectMeta, Resource
from tenantry.api.policyparameters import MOST_BYTES, PolicyParameters, parameters, size, texts_of
from tenantry.api.tenancyrules import OWN_MARK
from tenantry.api.versionorder import is_later, order
from tenantry.world import hosts, inheritance
from tenantry.world.hosts import HostHolder

_REQUESTS = ("tenantrequests", "rolerequests", "clusterrolerequests")

RETIRED = {
    "Validating": (
        "tenantry-made",
        "tenantry-mirror-identity",
        "tenantry-peers-finalizers",
        *(f"tenantry-{plural}{suffix}" for plural in _REQUESTS for suffix in ("", "-decisions")),
        *(f"{inheritance.COPIES}-{kind.plural}" for kind in inheritance.SCALED),
    )
}
"""Policies of older versions, and their bindings of the same name, that this version does not install: by kind.

`tenantry-made` is a part of `tenantry-marks` now, and one policy is about requests of all kinds.
What `tenantry-peers-finalizers` refused, the policies on the sizes and the Subnamespaces of guests refuse.
`tenantry-mirror-identity` kept users from a ServiceAccount in their namespace, which has no rights any more.
The policies on the scale of copies had the copies as parameters. Their successor has another name: with the same one,
the API server could see the new policy with the old binding for a moment, find no parameters, and allow the request.
"""


class ParameterMap(KubernetesObject, frozen=True, kw_only=True):
    """A ConfigMap with parameters of policies, as the older version wrote it: name to text."""

    resource: ClassVar[Resource] = Resource("", "v1", "configmaps", "ConfigMap", owned=("data",), selected=OWN_MARK)

    data: dict[str, str] = {}


SELECTED = {"labelSelector": f"{OWN_MARK},{MANAGED_BY}={MANAGER}"}
"""Selects the ConfigMaps with parameters, and PolicyParameters."""

REGISTER = {"labelSelector": f"{OWN_MARK}={HOSTS_MARK},{MANAGED_BY}={MANAGER}"}
"""Selects the parts of the register of hosts."""

BELOW = {"labelSelector": f"{KIND} in ({KIND_SUBTENANT},{KIND_WORKSPACE})"}
"""Selects the namespaces below the tenants' own."""

COPIES = {"labelSelector": INHERITED_FROM}
"""Selects the copies of workloads, which were parameters themselves."""


class CopiedWorkload(msgspec.Struct, frozen=True):
    """A copy of a workload; of its metadata only what a list of copies needs."""

    metadata: ObjectMeta


def require_not_newer(installed: str, own: str) -> None:
    """Check that a cluster does not have a newer release of Tenantry than this one.

    Args:
        installed: The version in the labels of its kinds; "" for a cluster without Tenantry.
        own: The version of this program.

    Raises:
        ConfigError: It has, or the version is not one of Tenantry.
    """
    if not installed:
        return
    if order(installed) is None:
        raise ConfigError(f"the kinds of the cluster have the label of version {installed[:64]!r}, which is no release")
    if is_later(installed, own):
        raise ConfigError(
            f"the cluster has Tenantry {installed}, which is newer than this command ({own}): use `tenantry`"
            f" {installed} or later, because this version does not know all of its objects and fields"
        )


def check(maps: Iterable[ParameterMap]) -> None:
    """Check that this version can store the parameters of an older one.

    Raises:
        InputError: The rules of a namespace are too long for this version.
    """
    for each in maps:
        if each.metadata.labels[OWN_MARK] != HOSTS_MARK and size(each.data) > MOST_BYTES:
            raise InputError(
                f"ConfigMap {each.key!r} has rules of {size(each.data)} bytes, and this version stores at most"
                f" {MOST_BYTES}: shorten spec.rules of that Tenant or Subnamespace, or of TenancyDefaults, with the"
                " version that is installed, and install this version again"
            )


def converted(
    maps: Iterable[ParameterMap],
    copies: Mapping[Resource, Sequence[CopiedWorkload]],
    zones: Mapping[str, str],
) -> list[PolicyParameters]:
    """Return the parameters that an older version kept in other kinds.

    Args:
        maps: Its ConfigMaps.
        copies: By kind, the workloads with the label `INHERITED_FROM`.
        zones: The network zones of namespaces; the older register has the uids of tenants instead.

    Raises:
        InputError: The rules of a namespace are too long for this version.
    """
    found: list[PolicyParameters] = []
    register: dict[str, HostHolder] = {}
    maps = tuple(maps)
    check(maps)
    for each in maps:
        purpose = each.metadata.labels[OWN_MARK]
        if purpose == HOSTS_MARK:
            register |= _holders(each.data, zones)
            continue
        found.append(parameters(each.metadata.name, each.metadata.namespace, purpose, each.data))
    parts = hosts.register(register)
    found += [parameters(f"{PREFIX}{part}", SYSTEM_NAMESPACE, HOSTS_MARK, texts) for part, texts in parts.items()]
    return [*found, *_listed(copies)]


def _holders(data: Mapping[str, str], zones: Mapping[str, str]) -> dict[str, HostHolder]:
    """Return the hosts of a part of the older register, in which each wildcard is an entry of its own."""
    wildcards = ["", *(f"{domain} {holder}" for domain, holder in data.items() if domain.startswith("."))]
    exact = {length: text for length, text in data.items() if not length.startswith(".")}
    found = hosts.holders_in({**exact, WILDCARDS: "\n".join(wildcards)})
    return {
        host: HostHolder(zones.get(holder.namespace, holder.zone), holder.namespace) for host, holder in found.items()
    }


def rezoned(parts: Iterable[PolicyParameters], namespaces: Iterable[Namespace]) -> list[PolicyParameters]:
    """Return the parts of the register that have hosts of Subtenants under the uid of the tenant, as they should be.

    Versions between two releases wrote these. A parent could take such a host of its Subtenant.

    Args:
        parts: The register.
        namespaces: Those below the tenants' own.
    """
    below = {each.metadata.name: each.metadata.labels for each in namespaces}
    found: list[PolicyParameters] = []
    for each in parts:
        before = hosts.holders_in(texts_of(each.metadata.annotations))
        after = {host: _in_zone(holder, below.get(holder.namespace, {})) for host, holder in before.items()}
        if after != before:
            ((_, texts),) = hosts.register(after).items()
            corrected = parameters(each.metadata.name, SYSTEM_NAMESPACE, HOSTS_MARK, texts)
            # At the version that was read: an operator may write the register at the same time.
            metadata = replace(corrected.metadata, resource_version=each.metadata.resource_version)
            found.append(replace(corrected, metadata=metadata))
    return found


def _in_zone(holder: HostHolder, labels: Mapping[str, str]) -> HostHolder:
    is_older = labels.get(TENANT_UID) == holder.zone
    return HostHolder(labels.get(ZONE, holder.zone), holder.namespace) if is_older else holder


def _listed(copies: Mapping[Resource, Sequence[CopiedWorkload]]) -> list[PolicyParameters]:
    """Return the lists of copies of each namespace."""
    texts: dict[str, dict[str, str]] = {}
    for resource, found in copies.items():
        for each in sorted(found, key=lambda copy: copy.metadata.name):
            meta = each.metadata
            inside = texts.setdefault(meta.namespace, {inheritance.SOURCE: meta.labels[INHERITED_FROM]})
            inside[resource.plural] = inside.get(resource.plural, "\n") + f"{meta.name}\n"
    return [
        parameters(inheritance.COPIES, namespace, inheritance.COPIES_MARK, inside)
        for namespace, inside in sorted(texts.items())
    ]
