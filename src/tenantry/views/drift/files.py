"""What applying files would change, and what follows: the plan of `tenantry plan -f`.

files ─► dry runs ─► changes of the files ──────────────────┐
objects of the tool that manages them ─► prunes ────────────┼─► steps with their consequences
plans of the controllers for what would be there ───────────┘
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from tenantry.api.errors import Forbidden
from tenantry.api.kinds import KINDS
from tenantry.api.model import Json, KubernetesObject
from tenantry.api.wording import shortened
from tenantry.engine.plan import Blocked, StepAction
from tenantry.engine.preview import Preview, shown
from tenantry.engine.tasks import all_of
from tenantry.views.drift import applied, changes, surroundings
from tenantry.views.drift.applied import AppliedObject
from tenantry.views.drift.pruned import key_of, pruned
from tenantry.views.drift.steps import PlannedStep, PlanSurroundings, StepAuthor, steps
from tenantry.views.manifests import WantedObject, sorted_by_kind

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_MOST_REFUSALS = 20


class BlockedTenant(msgspec.Struct, frozen=True, kw_only=True):
    """What keeps the operator from a part of the plan of one tenant."""

    tenant: str
    reason: str
    message: str


class FilesPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What applying files would do.

    Args:
        steps: In the order in which they would be written: the files, the prunes, the operator.
        blocked: What the operator would not do, and why.
        is_partial: The user may not read what the operator's plan follows from: it has the changes of the files and
            the prunes only, without what else they end.
    """

    steps: tuple[PlannedStep, ...]
    blocked: tuple[BlockedTenant, ...]
    is_partial: bool = False


async def plan(client: Client, wanted: Sequence[WantedObject], prunes: Mapping[str, str] | None) -> FilesPlan:
    """Return what applying files would do; nothing is written.

    Args:
        client: Of the cluster.
        wanted: The objects of the files.
        prunes: Labels that select what the files may prune, {} for what their GitOps tool manages; None for no prunes.

    Raises:
        Forbidden: The API server would refuse an object.
        NotFound: The namespace of an object does not exist, and no tenant of the files will have it.
        InputError: See `pruned`; or the namespace of an object does not belong to a tenant.
    """
    own = await applied.apply_all(client, wanted)
    refused = [each.refusal for each in own if each.refusal]
    if refused:
        told = shortened(refused, separator="\n  ", in_order=True, most=_MOST_REFUSALS)
        raise Forbidden(f"the API server would refuse {len(refused)} of {len(own)} objects:\n  {told}")
    gone = await _pruned(client, own, prunes) if prunes is not None else []
    removed = [value for value, _ in gone]
    files = [each.change for each in own if each.change is not None]
    prunings = [change for _, change in gone]
    try:
        drifts = await changes.find(client, (), sorted_by_kind((each.value for each in own), removed))
    except Forbidden:
        # An owner: the operator's plan follows from objects that only administrators may read.
        nothing = PlanSurroundings()
        mine = (*steps(StepAuthor.APPLY, files, nothing), *steps(StepAuthor.PRUNE, prunings, nothing))
        return FilesPlan(steps=mine, blocked=(), is_partial=True)
    ours = {(each.value.resource.kind, each.value.key) for each in own}
    theirs = [each for drift in drifts for each in drift.changes if (each.kind, each.key) not in ours]
    around = await surroundings.read(client, [*files, *prunings, *theirs])
    return FilesPlan(
        steps=(
            *steps(StepAuthor.APPLY, files, around),
            *steps(StepAuthor.PRUNE, prunings, around),
            *steps(StepAuthor.OPERATOR, theirs, around),
        ),
        blocked=tuple(_blocked(drift.tenant, each) for drift in drifts for each in drift.blocked),
    )


def _blocked(tenant: str, found: Blocked) -> BlockedTenant:
    return BlockedTenant(tenant=tenant, reason=found.reason, message=found.message)


async def _pruned(
    client: Client, own: Sequence[AppliedObject], labels: Mapping[str, str]
) -> list[tuple[KubernetesObject, Preview]]:
    """Return the objects that would be pruned, with their deletions."""
    by_kind = {kind.resource.kind: kind for kind in KINDS}
    listed = await all_of(_list(client, kind) for kind in KINDS)
    live = [each for few in listed for each in few]
    wanted = {(each.value.resource.kind, each.value.metadata.namespace, each.value.metadata.name) for each in own}
    found: list[tuple[KubernetesObject, Preview]] = []
    for each in pruned(live, wanted, labels):
        kind, namespace, name = key_of(each)
        change = Preview(
            action=StepAction.DELETE,
            kind=kind,
            namespace=namespace,
            name=name,
            before=shown(by_kind[kind].resource, each),
            after=None,
        )
        found.append((msgspec.convert(each, by_kind[kind]), change))
    return found


async def _list(client: Client, kind: type[KubernetesObject]) -> list[Json]:
    """Return all objects of a kind as the API server has them, with their kind, which lists leave out."""
    return [{**each, "kind": kind.resource.kind} async for each in client.items(kind.resource, Json)]
