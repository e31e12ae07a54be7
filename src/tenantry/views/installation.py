"""How the installed objects differ from those that this version ships.

The comparison is the operator's, which knows the defaults that the API server adds. A newer API server may add others.
So, for an object that seems to differ, this view asks the API server what it would store if the shipped object replaced
the stored one (a dry run), and compares the result.

    list ─► comparison.differing ─► PUT (dry run) of what seems to differ ─► differing fields
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

import msgspec

from tenantry.api import marks
from tenantry.api.errors import ApiError, Forbidden, NotFound
from tenantry.api.model import Json, Resource, object_key
from tenantry.api.policyparameters import PolicyParameters
from tenantry.api.runtime import RuntimeClass
from tenantry.api.tenancydefaults import NAME as DEFAULTS
from tenantry.api.tenancydefaults import TenancyDefaults
from tenantry.api.tenancyrules import TenancyRules
from tenantry.controllers import watched
from tenantry.controllers.installation.comparison import differing, exact, stored
from tenantry.controllers.installation.shipment import SELECTED
from tenantry.controllers.rules.desired import SharedRulesInputs, plan
from tenantry.controllers.runtime import sandbox_of
from tenantry.engine.observed import Observed, observe
from tenantry.engine.tasks import all_of
from tenantry.install import installed, manifests
from tenantry.install.waves import resource_of
from tenantry.kube import wire
from tenantry.kube.client import Client

BY_OPERATOR = "; the operator writes it"
"""How sentences end about objects that only the operator writes, or that Helm leaves to it."""


async def differences(client: Client) -> tuple[str, ...] | None:
    """Return how the installed policies, bindings, kinds, roles and shared parameters differ from the shipped ones.

    Args:
        client: An administrator's.

    Returns:
        A sentence for each object that differs; None if the caller may not compare them.
    """
    try:
        shipped = manifests.foundation(await installed.subject(client), await installed.form(client))
        live = await _live(client, shipped)
        found = await all_of(_compare(client, each, live.get(_key(each["kind"], each["metadata"]))) for each in shipped)
        return tuple(sorted([*(each for each in found if each), *await _parameters(client)]))
    except Forbidden:
        return None


async def _live(client: Client, shipped: Sequence[Json]) -> dict[tuple[str, str, str], Json]:
    """Return the installed objects, by kind, namespace and name; each kind is listed once."""
    kinds = {resource_of(each) for each in shipped if marks.INSTALLED_VERSION in each["metadata"]["labels"]}
    selectors = {"labelSelector": SELECTED}

    async def listed(resource: Resource) -> list[tuple[tuple[str, str, str], Json]]:
        return [
            (_key(resource.kind, item["metadata"]), item)
            async for page in client.pages(resource, Json, selectors=selectors)
            for item in page.items
        ]

    return {key: item for found in await all_of(listed(each) for each in kinds) for key, item in found}


def _key(kind: str, meta: Json) -> tuple[str, str, str]:
    return kind, meta.get("namespace", ""), meta["name"]


async def _compare(client: Client, shipped: Json, live: Json | None) -> str:
    """Return how one object differs; "" if it does not."""
    told = f"{shipped['kind']} {shipped['metadata']['name']!r}"
    found = await difference(client, shipped, live)
    if found.is_missing:
        is_left = (shipped["kind"], shipped["metadata"]["name"]) in manifests.OF_OPERATOR
        return f"{told} is missing{BY_OPERATOR if is_left else ''}"
    if found.problem:
        return f"{told} cannot become what this version ships: {found.problem}"
    return f"{told} differs in {', '.join(found.fields)}" if found.fields else ""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How one installed object differs from the shipped one.

    Args:
        is_missing: There is none.
        fields: What differs, as JSON paths.
        problem: Why the API server would not replace the installed object by the shipped one; "" if it would.
    """

    is_missing: bool = False
    fields: tuple[str, ...] = ()
    problem: str = ""


async def difference(client: Client, shipped: Json, live: Json | None = None) -> Difference:
    """Return how one object of a kind that is installed as it is shipped differs.

    Args:
        client: An administrator's.
        shipped: The object.
        live: The object as it was listed; None if it was not.

    Raises:
        Forbidden: The caller may not read or replace it.
    """
    resource, meta = resource_of(shipped), cast("Json", shipped["metadata"])
    url = wire.path(resource, meta.get("namespace", ""), meta["name"])
    wanted = stored(shipped)
    # An object is not listed if its labels were changed.
    if live is None or differing(wanted, live):
        live = await read(client, shipped)
        if live is None:
            return Difference(is_missing=True)
    if not differing(wanted, live):
        return Difference()
    body = msgspec.json.encode(exact(wanted, live))
    return await outcome(client.request("PUT", url, query={"dryRun": "All"}, body=body), live, differing)


async def outcome(dry_run: Awaitable[bytes], live: Json, compare: Callable[[Json, Json], Iterable[str]]) -> Difference:
    """Return how an installed object differs from what a dry run of a write leaves.

    Args:
        dry_run: The write.
        live: The installed object.
        compare: Returns the fields in which the object after the write, its first argument, differs from `live`.

    Raises:
        Forbidden: The caller may not write it.
    """
    try:
        answer = await dry_run
    except Forbidden:
        raise
    except ApiError as error:
        # The role of a binding, for example, cannot be changed.
        return Difference(problem=str(error))
    return Difference(fields=tuple(compare(cast("Json", msgspec.json.decode(answer)), live)))


async def read(client: Client, shipped: Json) -> Json | None:
    """Return the installed object of a shipped one; None if there is none.

    Raises:
        Forbidden: The caller may not read it.
    """
    meta = cast("Json", shipped["metadata"])
    try:
        answer = await client.request("GET", wire.path(resource_of(shipped), meta.get("namespace", ""), meta["name"]))
    except NotFound:
        return None
    return cast("Json", msgspec.json.decode(answer))


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
    differs = f"differs from what TenancyDefaults says{BY_OPERATOR}"
    return [
        f"{step.resource.kind} {object_key(step.namespace, step.name)!r} {differs}"
        for wave in needed.waves
        for step in wave
    ]


async def _observed(client: Client, resource: Resource) -> list[Observed]:
    """Return the objects of a kind in Tenantry's namespace, as the operator sees them."""
    pages = client.pages(
        resource, msgspec.Raw, namespace=marks.SYSTEM_NAMESPACE, selectors=watched.selectors_of(resource)
    )
    return [observe(resource, raw) async for page in pages for raw in page.items]
