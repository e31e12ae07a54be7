"""How the installed objects differ from those that this version ships.

The API server fills in defaults, so a shipped object is never equal to the stored one. For each object, this view asks
the API server what it would store if the shipped object replaced the stored one (a dry run), and compares the result
with what it stores. An apply would not do: it merges lists, and keeps what another client has added to them.

    shipped ─► PUT (dry run) ─► as it would be stored ─┐
    stored  ─────────────────────────────────────────── ┴► differing fields
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import cast

import msgspec

from tenantry.api import marks
from tenantry.api.errors import ApiError, Forbidden, NotFound
from tenantry.api.kubernetes import ClusterRoleBinding
from tenantry.api.model import Json, Resource, object_key
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.runtime import RuntimeClass
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import TenancyRules
from tenantry.controllers import watched
from tenantry.controllers.rules.desired import SharedRulesInputs, plan
from tenantry.controllers.runtime import sandbox_of
from tenantry.engine.observed import Observed, observe
from tenantry.engine.tasks import all_of
from tenantry.install import manifests
from tenantry.install.waves import resource_of
from tenantry.kube import wire
from tenantry.kube.client import Client

_NOT_COMPARED = ("apiVersion", "kind", "metadata", "status")
_OWN_CONDITION = ("Namespace", "PriorityLevelConfiguration", "FlowSchema")
"""Kinds of which only the labels are compared: TenancyDefaults changes the others, whose condition reports more."""


async def differences(client: Client) -> tuple[str, ...] | None:
    """Return how the installed policies, bindings, kinds, roles and shared parameters differ from the shipped ones.

    Args:
        client: An administrator's.

    Returns:
        A sentence for each object that differs; None if the caller may not compare them.
    """
    try:
        shipped = manifests.foundation(await _subject(client))
        found = await all_of(_compare(client, each) for each in shipped)
        return tuple(sorted([*(each for each in found if each), *await _parameters(client)]))
    except Forbidden:
        return None


async def _subject(client: Client) -> Json:
    """Return the operator as the installation names it: a user on a local cluster, else a ServiceAccount."""
    try:
        subjects = (await client.get(ClusterRoleBinding, manifests.OPERATOR)).subjects
    except NotFound:
        return manifests.SERVICE_ACCOUNT
    # Further subjects are differences.
    is_in_cluster = any(each.kind == manifests.SERVICE_ACCOUNT["kind"] for each in subjects)
    return manifests.SERVICE_ACCOUNT if is_in_cluster else manifests.LOCAL_USER


async def _compare(client: Client, shipped: Json) -> str:
    """Return how one object differs; "" if it does not.

    Raises:
        Forbidden: The caller may not read or replace it.
    """
    resource, meta = resource_of(shipped), cast("Json", shipped["metadata"])
    told = f"{resource.kind} {meta['name']!r}"
    url = wire.path(resource, meta.get("namespace", ""), meta["name"])
    try:
        live: Json = msgspec.json.decode(await client.request("GET", url))
    except NotFound:
        return f"{told} is missing"
    wrong = list(_labels(meta, live["metadata"]))
    if resource.kind not in _OWN_CONDITION and resource != PolicyParameters.resource:
        body = copy.deepcopy(shipped)
        body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
        if "aggregationRule" in shipped:
            body["rules"] = live.get("rules")  # Kubernetes collects them from other roles
        try:
            answer = await client.request("PUT", url, query={"dryRun": "All"}, body=msgspec.json.encode(body))
        except Forbidden:
            raise
        except ApiError as error:
            # The role of a binding, for example, cannot be changed.
            return f"{told} cannot become what this version ships: {error}"
        stored: Json = msgspec.json.decode(answer)
        wrong += [
            field
            for part in sorted({*stored, *live} - set(_NOT_COMPARED))
            for field in fields(part, stored.get(part), live.get(part))
        ]
    return f"{told} differs in {', '.join(wrong)}" if wrong else ""


def _labels(shipped: Json, live: Json) -> Iterator[str]:
    """Yield the labels that differ, without those that this version does not know."""
    wanted, there = (cast("dict[str, str]", each.get("labels") or {}) for each in (shipped, live))
    for key, value in wanted.items():
        if there.get(key) != value:
            yield f"metadata.labels[{key}]"


def fields(path: str, wanted: object, found: object) -> list[str]:
    """Return the first fields in which two values differ, below their last common object."""
    if wanted == found:
        return []
    if isinstance(wanted, dict) and isinstance(found, dict):
        one, other = cast("Json", wanted), cast("Json", found)
        return [
            field for key in sorted({*one, *other}) for field in fields(f"{path}.{key}", one.get(key), other.get(key))
        ]
    return [path]


async def _parameters(client: Client) -> Sequence[str]:
    """Return how the rules that namespaces share differ from what TenancyDefaults says."""
    made = {
        (kind.resource, each.key): each
        for kind in (PolicyParameters, TenancyRules)
        for each in await _observed(client, kind.resource)
    }
    defaults = next((each for each in await client.list(TenancyDefaults) if each.metadata.name == DEFAULTS), None)
    needed = plan(
        SharedRulesInputs(
            defaults=defaults,
            sandbox=sandbox_of(defaults, await client.list(RuntimeClass)),
            made=tuple(each for (resource, _), each in made.items() if resource == PolicyParameters.resource),
            lookup=lambda resource, key: made.get((resource, key)),
        )
    )
    return [
        f"{step.resource.kind} {object_key(step.namespace, step.name)!r} differs from what TenancyDefaults says"
        for wave in needed.waves
        for step in wave
    ]


async def _observed(client: Client, resource: Resource) -> list[Observed]:
    """Return the objects of a kind in Tenantry's namespace, as the operator sees them."""
    pages = client.pages(
        resource, msgspec.Raw, namespace=marks.SYSTEM_NAMESPACE, selectors=watched.selectors_of(resource)
    )
    return [observe(resource, raw) async for page in pages for raw in page.items]
