"""`tenantry slice`: creates, renews, approves, releases and lists claims of nodes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api import reasons
from tenantry.api.errors import InputError, NotFound
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.slice import (
    ClaimMode,
    ClaimReference,
    NodeSelector,
    Sharing,
    Slice,
    SliceClaim,
    SliceClaimSpec,
    SliceSpec,
    Users,
    approval_of,
    slice_name,
)
from tenantry.api.wording import shortened
from tenantry.cli import durations, flags, kinds, listing, nouns, output, place, session, spellings
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.listing import ListedObjects, ListOptions, run
from tenantry.cli.paths import NAMESPACED_NAME
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import wait_for_all

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.views.claims import ClaimView

_called = click.argument("called", metavar="NAME", type=NAMESPACED_NAME)
_in_tenant = place.takes_namespace("Namespace of the tenant (default: the namespace of the context).")
_HEADERS = ("NAMESPACE", "NAME", "STATE", "HAS", "NODES", "USED BY", "ENDS", "MESSAGE")


@click.group("slice")
def slice_() -> None:
    """Claim nodes for one tenant, and release them."""


@slice_.command()
@takes_target
@_called
@_in_tenant
@click.option("--count", default=1, show_default=True, type=click.IntRange(1, 500), help="Number of nodes.")
@click.option("--selector", "labels", multiple=True, metavar="KEY=VALUE,...", help="Labels that the nodes must have.")
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="Use only this node. May be repeated.")
@click.option("--per-node", multiple=True, metavar="RESOURCE=QUANTITY,...", help="Least capacity of each node.")
@click.option(
    "--part",
    multiple=True,
    metavar="cpu=QUANTITY,memory=QUANTITY",
    help="Claim a part of this size of each node instead of whole nodes.",
)
@click.option("--total", multiple=True, metavar="RESOURCE=QUANTITY,...", help="Least capacity of all nodes together.")
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in ClaimMode], case_sensitive=False),
    help="Dynamic: nodes are assigned at once. Manual: an administrator approves the claim with `tenantry slice"
    " approve` (default: Manual if the rules of the namespace are Restricted, else Dynamic).",
)
@spellings.option(
    "--subnamespace",
    "subnamespaces",
    old="--for",
    multiple=True,
    metavar="NAME",
    help="Subnamespace whose pods run on the nodes. May be repeated.",
)
@click.option(
    "--for-everybody", is_flag=True, help="The pods of the namespace and of all namespaces below it run on the nodes."
)
@click.option(
    "--grace",
    default=60,
    show_default=True,
    type=click.IntRange(0),
    metavar="SECONDS",
    help="Seconds that other tenants' pods get to stop.",
)
@click.option(
    "--replace-after",
    default=300,
    show_default=True,
    type=click.IntRange(0),
    metavar="SECONDS",
    help="Seconds after which a node that is not ready is replaced; 0: never.",
)
@flags.expiry_option("Release the nodes")
@flags.takes_wait("Wait until the claim is ready.", timeout="5m")
@flags.dry_run_option
@output.output_option("json", "yaml", "name", *output.TEMPLATES)
def create(
    target: Target,
    *,
    called: str,
    namespace: str,
    count: int,
    labels: tuple[str, ...],
    nodes: tuple[str, ...],
    per_node: tuple[str, ...],
    part: tuple[str, ...],
    total: tuple[str, ...],
    mode: str | None,
    subnamespaces: tuple[str, ...],
    for_everybody: bool,
    grace: int,
    replace_after: int,
    expires: str,
    seconds: int | None,
    dry_run: bool,
    form: str | None,
) -> None:
    r"""Claim nodes: pods of other tenants are evicted from them, and none are scheduled there.

    \b
      tenantry slice create fast -n acme --count 2 --selector disk=ssd --for-everybody --wait
      tenantry slice create ml -n acme --per-node nvidia.com/gpu=4 --subnamespace training --expires 72h
      tenantry slice create web -n acme --part cpu=2,memory=4Gi --for-everybody
    """
    if part and (per_node or total):
        raise InputError("--part may not be given together with --per-node or --total: it is the size of each part")
    spec = SliceClaimSpec(
        mode=ClaimMode(mode) if mode else msgspec.UNSET,
        sharing=Sharing.PART if part else Sharing.WHOLE,
        count=count,
        selector=NodeSelector(
            match_labels=flags.parse_pairs("--selector", [part for text in labels for part in text.split(",")])
        ),
        node_names=nodes,
        per_node=flags.parse_quota(part, "--part") if part else flags.parse_quota(per_node, "--per-node"),
        total=flags.parse_quota(total, "--total"),
        users=Users.EVERYBODY if for_everybody else Users.SUBNAMESPACES,
        subnamespaces=subnamespaces,
        grace_period_seconds=grace,
        replace_after_seconds=replace_after,
        expires_at=flags.parse_expiry("--expires", expires),
    )
    wanted = SliceClaim(metadata=ObjectMeta(name=called, namespace=place.parent(target, namespace)), spec=spec)
    if dry_run:
        flags.print_one(wanted, output.whole(wanted), form or "yaml")
        return
    made = session.run(target, lambda client: _claim(client, wanted, seconds=seconds))
    if form:
        flags.print_one(wanted, made, form)


async def _claim(client: Client, wanted: SliceClaim, *, seconds: int | None) -> Json:
    made: Json = msgspec.json.decode(await client.create(wanted))
    told = f"{kinds.told_key(SliceClaim, wanted.key)} created"
    if seconds is None:
        output.talk(f"{told}; `tenantry slice list` shows its state")
        return made
    output.talk(told)
    asked = ObjectSelection(SliceClaim, (wanted.metadata.name,), wanted.metadata.namespace)
    await wait_for_all(client, [asked], seconds=seconds)
    return output.whole(await client.get(SliceClaim, wanted.metadata.name, wanted.metadata.namespace))


@slice_.command()
@takes_target
@_called
@_in_tenant
@flags.renewal_option
def renew(target: Target, *, called: str, namespace: str, until: str) -> None:
    r"""Change when a claim expires.

    \b
      tenantry slice renew fast -n acme --for 72h
      tenantry slice renew fast -n acme --for never
    """
    expires_at = flags.parse_renewal(until)
    asked = ObjectSelection(SliceClaim, (called,), place.parent(target, namespace))
    session.run(target, lambda client: flags.renew(client, asked, expires_at))


@click.command()
@takes_target
@_called
@_in_tenant
def release(target: Target, *, called: str, namespace: str) -> None:
    r"""Release nodes: the tenant's pods are evicted, and the nodes return to the shared pool.

    \b
      tenantry slice delete fast -n acme
    """
    where = place.parent(target, namespace)
    session.run(target, lambda client: client.delete(SliceClaim.resource, where, called))
    output.talk(f"{kinds.told(SliceClaim, called, where)} deleted; its nodes are released when they are empty")


@slice_.command()
@takes_target
@_called
@_in_tenant
def approve(target: Target, *, called: str, namespace: str) -> None:
    r"""Approve the nodes that a Manual claim requests now, as an administrator.

    Run the command again after a change of the claim. Deleting the Slice of the claim releases the nodes.

    \b
      tenantry slice approve fast -n acme
    """
    where = place.parent(target, namespace)
    told = session.run(target, lambda client: _approve(client, called, where))
    output.talk(told)


async def _approve(client: Client, name: str, namespace: str) -> str:
    from tenantry.api.kubernetes import Namespace
    from tenantry.api.marks import MANAGED_BY, MANAGER, TENANT
    from tenantry.engine.conditions import find
    from tenantry.kube import wire

    found = await client.get(SliceClaim, name, namespace)
    # Without a mode, the rules of the namespace decide, and the operator reports what the claim waits for.
    ready = find(found.status.conditions, reasons.READY)
    waits = ready is not None and ready.reason == reasons.AWAITING_ADMINISTRATOR
    called = slice_name(name, found.metadata.uid)
    try:
        before = await client.get(Slice, called)
    except NotFound:
        before = None
    is_ours = before is not None and before.metadata.labels.get(MANAGED_BY) == MANAGER
    if is_ours or (before is None and found.spec.mode is not ClaimMode.MANUAL and not waits):
        raise InputError(f"{kinds.told_key(SliceClaim, found.key)} is Dynamic: it gets nodes without an approval")
    if before is not None:
        # Replaced as a whole: a merge patch would keep labels and resources that the claim no longer names.
        spec = msgspec.structs.replace(before.spec, approved=approval_of(found.spec))
        changed = msgspec.structs.replace(before, spec=spec)
        await client.request("PUT", wire.path(Slice.resource, "", called), body=wire.encode(changed))
        return f"slice {called!r} changed"
    tenant = (await client.get(Namespace, namespace)).metadata.labels.get(TENANT, "")
    reference = ClaimReference(namespace=namespace, name=name, uid=found.metadata.uid)
    spec = SliceSpec(
        claim=reference,
        tenant=tenant,
        sharing=found.spec.sharing,
        grace_period_seconds=found.spec.grace_period_seconds,
        approved=approval_of(found.spec),
    )
    wanted = Slice(metadata=ObjectMeta(name=called), spec=spec)
    await client.create(wanted)
    return f"slice {called!r} created"


@slice_.command("list")
@takes_target
@place.takes_namespace("List only the claims of this namespace.")
@listing.takes_options("wide")
def list_(target: Target, *, namespace: str, listing: ListOptions) -> None:
    r"""List claims with their states and nodes.

    \b
      tenantry slice list
      tenantry slice list -n acme -o json
    """
    from tenantry.views import claims

    own = place.context_namespace(target)

    async def read(client: Client) -> ListedObjects:
        found = sorted(await claims.read(client, namespace, own), key=lambda each: each.key)
        now = datetime.now(UTC)
        return ListedObjects(
            headers=_HEADERS,
            rows=[_row(each, now) for each in claims.claims(found)],
            objects=[output.whole(each) for each in found],
            names=[kinds.full_name(SliceClaim, each.metadata.name) for each in found],
            keys=[each.key for each in found],
        )

    empty = "no claims; `tenantry slice create` creates one"
    run(target, listing, read, empty=empty, kinds=[(SliceClaim, namespace), (SliceClaim, own)])


def _row(view: ClaimView, now: datetime) -> tuple[str, ...]:
    size = f" ({', '.join(view.part.values())})" if view.part else ""
    cells = (
        view.namespace,
        view.name,
        view.state + (",Degraded" if view.degraded else ""),
        f"{len(view.nodes)}/{view.count}{size}",
        shortened(view.nodes, in_order=True),
        shortened(view.users),
        durations.remaining(view.ends, now),
        "; ".join(view.messages),
    )
    return tuple(output.cell(each) for each in cells)


slice_.add_command(spellings.moved(create, "claim", "tenantry slice create"))
slice_.add_command(spellings.moved(release, "release", "tenantry slice delete"))
nouns.complete(slice_, nouns.Noun("sliceclaim", "claim of nodes", "claims of nodes", "fast"))
