"""`tenantry sub`: creates, moves, renews and deletes subnamespaces, adds and removes their owners."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
import msgspec
from typing_extensions import Unpack

from tenantry.api import marks
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.errors import Forbidden, InputError, NotFound, TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.quota import Quota
from tenantry.api.subnamespace import (
    Adoption,
    Inheritance,
    InheritanceMode,
    Mode,
    OtherInheritance,
    Scope,
    Subnamespace,
    SubnamespaceIsolation,
    SubnamespaceSpec,
)
from tenantry.cli import controlplane, flags, kinds, nouns, output, ownership, place, removal, session
from tenantry.cli.completion import candidates
from tenantry.cli.convert import convert_subnamespace
from tenantry.cli.delete import delete_objects, read_existing
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.paths import NAMESPACE, NAMESPACED_NAME
from tenantry.cli.target import Target, takes_target
from tenantry.cli.wait import GONE, judged, wait_for_all
from tenantry.world.naming import child_name
from tenantry.world.validation import validate_subnamespace

if TYPE_CHECKING:
    from tenantry.api.owner import Owner
    from tenantry.kube.client import Client

FIELDS = {
    "roles": "roles",
    "rolebindings": "role_bindings",
    "networkpolicies": "network_policies",
    "limitranges": "limit_ranges",
    "secrets": "secrets",
    "configmaps": "config_maps",
    "serviceaccounts": "service_accounts",
}
"""The kinds that have a field in `spec.inheritance`, as --inherit names them."""

VERDICT_SECONDS = 10.0
"""How long `create` without --wait looks for what the operator decides: it is one reconcile."""

APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@click.group()
def sub() -> None:
    """Create, move, renew and delete subnamespaces, add and remove owners."""


@sub.command()
@takes_target
@click.argument("child", metavar="NAME", type=NAMESPACED_NAME)
@place.parent_option
@flags.choice_option(
    "--mode", Mode.WORKSPACE, "Workspace: for a team. Subtenant: for a customer; the parent has no access."
)
@flags.owner_option("An owner: ada, User:ada, Group:devs or ServiceAccount:NAMESPACE/NAME.")
@flags.quota_option("Share of the parent's quota, as in cpu=2,memory=4Gi.")
@click.option(
    "--inherit",
    "inherited",
    multiple=True,
    metavar="KIND=MODE,...",
    help=f"Kinds of the parent's objects to inherit, as in secrets=Copy: {', '.join(FIELDS)}, or another kind as in"
    " widgets.example.com; None, Copy (once) or Sync (kept the same). May be repeated. A Workspace without --inherit"
    " and --owner inherits roles=Sync,rolebindings=Sync: the users of the parent work in it.",
)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE,...", help="Labels of the namespace.")
@click.option("--annotation", "annotations", multiple=True, metavar="KEY=VALUE", help="Annotation of the namespace.")
@flags.expiry_option("Delete it")
@click.option(
    "--allow-cascading-deletion",
    "cascades",
    is_flag=True,
    help="Allow its deletion together with the subnamespaces inside.",
)
@flags.control_plane_option
@flags.choice_option(
    "--scope", Scope.LOCAL, "Federated: the namespace has the same name on every cluster of a federation."
)
@flags.dry_run_option
@flags.takes_wait()
@output.output_option("json", "yaml", "name", *output.TEMPLATES)
def create(
    target: Target,
    *,
    child: str,
    namespace: str,
    mode: str,
    owners: tuple[str, ...],
    quotas: tuple[str, ...],
    inherited: tuple[str, ...],
    labels: tuple[str, ...],
    annotations: tuple[str, ...],
    expires: str,
    cascades: bool,
    control_plane: str,
    scope: str,
    dry_run: bool,
    seconds: int | None,
    form: str | None,
) -> None:
    r"""Create a subnamespace in a tenant's namespace.

    \b
      tenantry sub create web -n acme --quota cpu=2,memory=4Gi --wait
      tenantry sub create shop -n acme --mode subtenant --owner bob --inherit secrets=Copy
      tenantry sub create trial -n acme --expires 72h
    """
    spec = SubnamespaceSpec(
        mode=Mode(mode),
        owners=tuple(flags.parse_owner(owner) for owner in owners),
        quota=Quota(hard=flags.parse_quota(quotas)),
        inheritance=inheritance(inherited, mode=Mode(mode), owned=bool(owners)),
        labels=flags.parse_pairs("--label", [part for text in labels for part in text.split(",")]),
        annotations=flags.parse_pairs("--annotation", annotations),
        expires_at=flags.parse_expiry("--expires", expires),
        allow_cascading_deletion=cascades,
        scope=Scope(scope),
        isolation=SubnamespaceIsolation(control_plane=ControlPlaneChoice(control_plane)),
    )
    parent = place.parent(target, namespace)
    wanted = Subnamespace(metadata=ObjectMeta(name=child, namespace=parent), spec=spec)
    problems = validate_subnamespace(wanted)
    if not problems and not dry_run:
        controlplane.prepare(target, control_plane)
    create = functools.partial(_create, seconds=seconds)
    flags.make(target, wanted, problems, create, dry_run=dry_run, form=form)


async def _create(client: Client, wanted: Subnamespace, *, seconds: int | None) -> Json:
    meta = wanted.metadata
    labels = await _labels_of(client, meta.namespace)
    made: Json = msgspec.json.decode(await client.create(wanted))
    output.talk(f"{kinds.told_key(Subnamespace, wanted.key)} created")
    if labels is not None and not wanted.spec.adopt.namespace:
        home = labels.get(marks.CLUSTER_UID, "") if wanted.spec.scope is Scope.FEDERATED else ""
        named = wanted.spec.namespace_name or child_name(labels[marks.TENANT_UID], meta.namespace, meta.name, home)
        output.talk(f"its namespace is called {named!r}")
    if seconds is not None:
        asked = ObjectSelection(Subnamespace, (meta.name,), meta.namespace)
        await wait_for_all(client, [asked], seconds=seconds)
    else:
        await _report(client, wanted)
    return made


async def _report(client: Client, wanted: Subnamespace) -> None:
    """Wait until the operator has decided about a new Subnamespace, and report what keeps it from being ready.

    Raises:
        TenantryError: It is not ready, and will not be until a person acts.
    """
    told = kinds.told_key(Subnamespace, wanted.key)
    asked = ObjectSelection(Subnamespace, (wanted.metadata.name,), wanted.metadata.namespace)
    try:
        async with asyncio.timeout(VERDICT_SECONDS):
            decided = await judged(client, asked)
    except TimeoutError:
        output.talk(
            f"{told}: the operator has not decided yet; `tenantry wait sub {asked.names[0]} -n"
            f" {asked.namespace}` waits for it"
        )
        return
    except Forbidden:
        return  # a user who may create it, and not read it
    if decided:
        raise TenantryError(f"{told} exists, and is not ready: {decided}")


async def _labels_of(client: Client, namespace: str) -> Mapping[str, str] | None:
    """Return the labels of a tenant's namespace; None if the user may not read them.

    Raises:
        NotFound: The namespace does not exist.
        InputError: It does not belong to a tenant.
    """
    try:
        found = await client.get(Namespace, namespace)
    except Forbidden:
        return None  # the operator reports a wrong parent in a condition
    except NotFound as error:
        raise NotFound(f"there is no namespace {namespace!r}; `tenantry tree` draws the existing ones") from error
    labels = found.metadata.labels
    if labels.get(marks.MANAGED_BY) != marks.MANAGER or marks.TENANT_UID not in labels:
        raise InputError(
            f"the namespace {namespace!r} does not belong to a tenant: create the Subnamespace in one that"
            " `tenantry tree` draws"
        )
    return labels


def inheritance(texts: Sequence[str], *, mode: Mode, owned: bool) -> Inheritance:
    """Return the inheritance of `--inherit`, or the default of a Workspace.

    Args:
        texts: The values of --inherit.
        mode: The mode of the Subnamespace.
        owned: The Subnamespace has owners of its own.

    Raises:
        InputError: A part is not KIND=MODE, or a kind is unknown or given twice.
    """
    if not texts and mode is Mode.WORKSPACE and not owned:
        return Inheritance(roles=InheritanceMode.SYNC, role_bindings=InheritanceMode.SYNC)
    modes = {each.value.lower(): each for each in InheritanceMode}
    modes_by_field: dict[str, InheritanceMode] = {}
    others: list[OtherInheritance] = []
    for key, value in flags.parse_pairs("--inherit", [part for text in texts for part in text.split(",")]).items():
        chosen = modes.get(value.lower())
        if chosen is None:
            raise InputError(f"--inherit {key}={value}: {value!r} must be None, Copy or Sync")
        word = key.lower()
        field = FIELDS.get(word) or FIELDS.get(f"{word}s") or FIELDS.get(f"{word.removesuffix('y')}ies")
        if field is None and "." not in word:
            raise InputError(
                f"--inherit names {key!r}, which must be one of {', '.join(FIELDS)}, or a kind's plural and group as in"
                " widgets.example.com"
            )
        if field is None:
            others.append(OtherInheritance(resource=word, mode=chosen))
        elif field in modes_by_field:
            raise InputError(f"--inherit names {key!r} twice; keep one")
        else:
            modes_by_field[field] = chosen
    return Inheritance(**modes_by_field, others=tuple(others))


# -- move -----------------------------------------------------------------------------------------


@sub.command()
@takes_target
@click.argument("child", metavar="NAME", shell_complete=candidates.subnamespaces)
@click.option(
    "--from",
    "source",
    required=True,
    metavar="NAMESPACE",
    shell_complete=candidates.namespaces,
    type=NAMESPACE,
    help="Present parent.",
)
@click.option(
    "--to",
    "goal",
    required=True,
    metavar="NAMESPACE",
    shell_complete=candidates.namespaces,
    type=NAMESPACE,
    help="New parent.",
)
@flags.takes_wait("Wait until the move is complete.", default=True)
def move(target: Target, *, child: str, source: str, goal: str, seconds: int | None) -> None:
    r"""Move a subnamespace to another parent of the same tenant; its namespace and everything in it stay unchanged.

    The command creates a Subnamespace of the same name and spec in the new parent, which adopts the namespace; the
    operator then deletes the old Subnamespace. The quota of the new parent must have room for it.

    \b
      tenantry sub move web --from acme --to platform-0c5a38e2a1d6f4b7
    """
    if source == goal:
        raise InputError(f"--from and --to are both {source!r}: it is there already")
    session.run(target, lambda client: _move(client, child, source, goal, seconds=seconds))


async def _move(client: Client, name: str, source: str, goal: str, *, seconds: int | None) -> None:
    before = await read_existing(client, Subnamespace, name, source)
    namespace = before.status.namespace
    if not namespace:
        raise InputError(f"{kinds.told(Subnamespace, name, source)} has no namespace yet: nothing can be moved")
    from tenantry.engine.tasks import all_of

    here, labels = await all_of([_labels_of(client, source), _labels_of(client, goal)])
    if here and labels and here[marks.TENANT_UID] != labels[marks.TENANT_UID]:
        raise InputError(
            f"--to {goal!r} is a namespace of tenant {labels.get(marks.TENANT)!r}, --from {source!r} of tenant"
            f" {here.get(marks.TENANT)!r}: a subnamespace can only move within its tenant; between tenants an"
            f" administrator creates one whose spec.adopt names {namespace!r}, and labels that namespace with"
            " tenantry.dev/subnamespace-uid"
        )
    if labels is not None and f"{namespace}{marks.TREE_SUFFIX}" in labels:
        raise InputError(f"--to {goal!r} is {name!r} itself, or below it: a namespace cannot be inside itself")
    meta = ObjectMeta(
        name=name,
        namespace=goal,
        labels=before.metadata.labels,
        # kubectl's copy of the manifest is about the object in the old parent.
        annotations={key: value for key, value in before.metadata.annotations.items() if key != APPLIED},
    )
    adopt = Adoption(namespace=namespace, parent=source)
    wanted = Subnamespace(metadata=meta, spec=msgspec.structs.replace(before.spec, adopt=adopt))
    await _create(client, wanted, seconds=seconds)
    if seconds is not None:
        old = ObjectSelection(Subnamespace, (name,), source)
        await wait_for_all(client, [old], GONE, seconds=seconds)


# -- renew and delete -----------------------------------------------------------------------------


@sub.command()
@takes_target
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", type=NAMESPACED_NAME, shell_complete=candidates.subnamespaces
)
@place.parent_option
@flags.renewal_option
def renew(target: Target, *, names: tuple[str, ...], namespace: str, until: str) -> None:
    r"""Change when subnamespaces expire.

    \b
      tenantry sub renew trial -n acme --for 72h
      tenantry sub renew trial -n acme --for never
    """
    expires_at = flags.parse_renewal(until)
    asked = ObjectSelection(Subnamespace, tuple(dict.fromkeys(names)), place.parent(target, namespace))
    session.run(target, lambda client: flags.renew(client, asked, expires_at))


@sub.command()
@takes_target
@click.argument(
    "names", nargs=-1, required=True, metavar="NAME...", type=NAMESPACED_NAME, shell_complete=candidates.subnamespaces
)
@place.parent_option
@click.option(
    "--cascade",
    "cascades",
    is_flag=True,
    help="Also delete nested subnamespaces (sets spec.allowCascadingDeletion first).",
)
@flags.yes_option
@flags.takes_wait("Wait until everything is gone.", default=True, timeout="2m")
def delete(
    target: Target, *, names: tuple[str, ...], namespace: str, cascades: bool, yes: bool, seconds: int | None
) -> None:
    r"""Delete subnamespaces, with their namespaces and everything in them.

    A subnamespace with others inside is deleted only if its spec or --cascade allows it.

    \b
      tenantry sub delete web -n acme
      tenantry sub delete web -n acme --cascade --yes
    """
    asked = ObjectSelection(Subnamespace, tuple(dict.fromkeys(names)), place.parent(target, namespace))
    session.run(target, lambda client: delete_objects(client, [asked], yes=yes, seconds=seconds, cascades=cascades))


@sub.command("add-owner")
@takes_target
@click.argument("child", metavar="NAME", type=NAMESPACED_NAME, shell_complete=candidates.subnamespaces)
@flags.owners_argument
@place.parent_option
@flags.takes_wait()
def add_owner(target: Target, *, child: str, added: tuple[Owner, ...], namespace: str, seconds: int | None) -> None:
    r"""Add owners to a subnamespace; those that it has stay.

    Only administrators add owners to a Subtenant.

    \b
      tenantry sub add-owner web bob -n acme
    """
    asked = ObjectSelection(Subnamespace, (child,), place.parent(target, namespace))
    session.run(target, lambda client: ownership.add(client, asked, added, seconds=seconds))


@sub.command("remove-owner")
@takes_target
@click.argument("child", metavar="NAME", type=NAMESPACED_NAME, shell_complete=candidates.subnamespaces)
@place.parent_option
@removal.removal_options
def remove_owner(target: Target, *, child: str, namespace: str, **choices: Unpack[removal.Choices]) -> None:
    r"""Remove an owner from a subnamespace, and end the tokens of ServiceAccounts that this owner may hold.

    See `tenantry tenant remove-owner`. Only administrators remove owners of a Subtenant.

    \b
      tenantry sub remove-owner web bob -n acme --end-tokens
    """
    removal.run(target, ObjectSelection(Subnamespace, (child,), place.parent(target, namespace)), **choices)


sub.add_command(convert_subnamespace)
nouns.complete(sub, nouns.Noun("subnamespace", "subnamespace", "subnamespaces", "web"))
