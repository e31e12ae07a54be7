"""`tenantry request`: requests tenants and roles, lists the requests, and shows them."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tenantry.api.errors import InputError
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.names import DNS_LABEL
from tenantry.api.owner import OwnerKind
from tenantry.api.quota import Quota
from tenantry.api.requests import (
    LONGEST_NAME,
    REQUESTS,
    ClusterRoleRequest,
    ClusterRoleRequestSpec,
    Decision,
    Request,
    RequestedClusterRole,
    RequestedRole,
    RequestedSubject,
    RoleKind,
    RoleRequest,
    RoleRequestSpec,
    SubjectKind,
    TenantRequest,
    TenantRequestSpec,
)
from tenantry.cli import durations, flags, kinds, listing, output, paths, place, session, spellings
from tenantry.cli.delete import delete
from tenantry.cli.describe.command import describe
from tenantry.cli.get import get
from tenantry.cli.listing import ListedObjects, ListOptions, run
from tenantry.cli.target import Target, named, takes_target
from tenantry.cli.wait import wait
from tenantry.local.progress import StreamProgress

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.views.requests import RequestView

PROGRESS_SECONDS = 0.25
"""How often the progress of a long wait is shown."""

_because = spellings.option(
    "--reason", "because", old="--because", default="", metavar="TEXT", help="Reason, for the approver."
)
_duration = click.option(
    "--for",
    "seconds",
    type=durations.DURATION,
    default=0,
    metavar="DURATION",
    help="Duration of the grant, as in 8h or 30d (default: no end).",
)
_named = click.option("--as-name", "own_name", default="", metavar="NAME", help="Request name (default: generated).")
_subjects = click.option(
    "--subject",
    "subjects",
    multiple=True,
    metavar="[KIND:]NAME",
    help="Subject: ada, User:ada or Group:devs (default: you). May be repeated.",
)
_namespace = place.takes_namespace("Namespace of the tenant (default: the namespace of the context).")


@click.group()
def request() -> None:
    """Request a tenant or a role; an approver decides, and `tenantry request list` shows the requests."""


@request.group()
def create() -> None:
    """Request a tenant, or a role in a namespace or in the whole cluster."""


@create.command()
@takes_target
@click.argument("tenant_name", metavar="TENANT")
@flags.owner_option("Owner: ada, User:ada or Group:devs (default: you).")
@flags.quota_option("Quota of the whole tenant, as in cpu=4,memory=8Gi,pods=50.")
@_because
@_duration
@_named
@output.output_option("json", "yaml", "name", *output.TEMPLATES)
def tenant(
    target: Target,
    *,
    tenant_name: str,
    owners: tuple[str, ...],
    quotas: tuple[str, ...],
    because: str,
    seconds: int,
    own_name: str,
    form: str | None,
) -> None:
    r"""Request a tenant.

    \b
      tenantry request create tenant acme --quota cpu=4,memory=8Gi --reason "our web shop"
    """
    spec = TenantRequestSpec(
        tenant=tenant_name,
        owners=tuple(flags.parse_owner(owner) for owner in owners),
        quota=Quota(hard=flags.parse_quota(quotas)),
        justification=because,
        duration_seconds=seconds,
    )
    _ask(target, TenantRequest(metadata=_meta(own_name, tenant_name), spec=spec), form)


@create.command()
@takes_target
@click.argument("role_name", metavar="ROLE")
@_namespace
@flags.choice_option("--kind", RoleKind.ROLE, "Kind of the role; a ClusterRole is bound in the namespace.")
@_subjects
@_because
@_duration
@_named
@output.output_option("json", "yaml", "name", *output.TEMPLATES)
def role(
    target: Target,
    *,
    role_name: str,
    namespace: str,
    kind: str,
    subjects: tuple[str, ...],
    because: str,
    seconds: int,
    own_name: str,
    form: str | None,
) -> None:
    r"""Request a role in a namespace of a tenant.

    \b
      tenantry request create role edit --kind ClusterRole -n acme --for 8h --reason "the incident of tonight"
    """
    spec = RoleRequestSpec(
        role_ref=RequestedRole(kind=RoleKind(kind), name=role_name),
        subjects=parse_subjects(subjects),
        justification=because,
        duration_seconds=seconds,
    )
    where = place.parent(target, namespace)
    _ask(target, RoleRequest(metadata=_meta(own_name, role_name, where), spec=spec), form)


@create.command()
@takes_target
@click.argument("role_name", metavar="CLUSTERROLE")
@_subjects
@_because
@_duration
@_named
@output.output_option("json", "yaml", "name", *output.TEMPLATES)
def clusterrole(
    target: Target,
    *,
    role_name: str,
    subjects: tuple[str, ...],
    because: str,
    seconds: int,
    own_name: str,
    form: str | None,
) -> None:
    r"""Request a role in the whole cluster.

    \b
      tenantry request create clusterrole view --for 2h --reason "looking for the leak"
    """
    spec = ClusterRoleRequestSpec(
        role_ref=RequestedClusterRole(name=role_name),
        subjects=parse_subjects(subjects),
        justification=because,
        duration_seconds=seconds,
    )
    _ask(target, ClusterRoleRequest(metadata=_meta(own_name, role_name), spec=spec), form)


def parse_subjects(texts: Sequence[str]) -> tuple[RequestedSubject, ...]:
    """Return the subjects that `--subject` names.

    Raises:
        InputError: A subject is a ServiceAccount, or has a kind without a name.
    """
    found: list[RequestedSubject] = []
    for text in texts:
        if text.lower().startswith(f"{OwnerKind.SERVICE_ACCOUNT.lower()}:"):
            raise InputError(f"--subject {text!r} must be a User or a Group: roles are asked for people")
        owner = flags.parse_owner(text, "--subject")
        found.append(RequestedSubject(kind=SubjectKind(owner.kind.value), name=owner.name))
    return tuple(found)


def request_name(about: str) -> str:
    """Return a name for a request that is unused and cannot be guessed."""
    stem = re.sub("[^a-z0-9-]+", "-", about.lower()).strip("-")[: LONGEST_NAME - 9].rstrip("-")
    return f"{stem or 'request'}-{secrets.token_hex(4)}"


def _meta(name: str, about: str, namespace: str = "") -> ObjectMeta:
    if name and (not re.search(DNS_LABEL, name) or len(name) > LONGEST_NAME):
        raise InputError(f"--as-name {name!r} must be at most {LONGEST_NAME} lower-case letters, digits and -")
    return ObjectMeta(name=name or request_name(about), namespace=namespace)


def _ask(target: Target, wanted: Request, form: str | None) -> None:
    made: Json = session.run(target, lambda client: _create(client, wanted))
    kind, meta = type(wanted), wanted.metadata
    output.talk(f"{kinds.told(kind, meta.name, meta.namespace)} created")
    where = f" -n {meta.namespace}" if meta.namespace else ""
    short = kinds.names_of(kind).short[0]
    output.talk(f"waiting for approval; an approver runs: tenantry approve {short}/{meta.name}{where}")
    if form:
        flags.print_one(wanted, made, form)


async def _create(client: Client, wanted: Request) -> Json:
    """Create a request; in the first seconds after an installation, wait until the API server accepts requests."""
    from tenantry.engine.tasks import in_background
    from tenantry.install.apply import stamped

    with StreamProgress() as progress:
        async with in_background(stamped(client, wanted.resource, msgspec.to_builtins(wanted))) as waiting:
            while not (await asyncio.wait((waiting,), timeout=PROGRESS_SECONDS))[0]:
                progress.update("waiting until the API server accepts requests")
            await waiting
    return msgspec.json.decode(await client.create(wanted))


# -- listing --------------------------------------------------------------------------------------


@request.command("list")
@takes_target
@_namespace
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="List requests in all namespaces.")
@click.option("--pending", is_flag=True, help="List only requests without a decision.")
@listing.takes_options("wide")
def list_(target: Target, *, namespace: str, everywhere: bool, pending: bool, listing: ListOptions) -> None:
    r"""Print requests, the oldest first; without -n, in all namespaces that you may read.

    \b
      tenantry request list --pending
      tenantry request list -n acme
    """
    if namespace and everywhere:
        raise InputError("give either --namespace or --all-namespaces, not both")
    chosen = namespace or ("" if everywhere else place.context_namespace(target))
    from tenantry.views import requests as view
    from tenantry.views.acting import readable

    async def read(client: Client) -> ListedObjects:
        own = partial(readable, client, TenantRequest.resource)
        # The namespace of the context says where a user works, not that the requests of the cluster are not wanted.
        found = await view.read(client, chosen, own, of_cluster=not namespace)
        notes: list[str] = []
        if found.unread:
            notes.append(f"not shown, because you may not list them: {', '.join(found.unread)}")
        if found.own_only:
            notes.append("only your own TenantRequests are shown, because you may not list those of other users")
        shown = [each for each in found.requests if not pending or each.status.decision is Decision.PENDING]
        now = datetime.now(UTC)
        return ListedObjects(
            headers=HEADERS,
            rows=[row(view.view(each), now) for each in shown],
            objects=[output.whole(each) for each in shown],
            names=[kinds.full_name(type(each), each.metadata.name) for each in shown],
            keys=[f"{each.resource.kind}/{each.key}" for each in shown],
            notes=notes,
        )

    empty = "no request waits for a decision" if pending else "no requests found"
    watched = [(kind, chosen if kind.resource.namespaced else "") for kind in REQUESTS]
    run(target, listing, read, empty=empty, kinds=watched)


# -- the verbs of every noun ----------------------------------------------------------------------


def _of_requests(command: click.Command, name: str, metavar: str, text: str) -> click.Command:
    """Return a command about objects of any kind as one about requests, whose names need no kind before them."""
    rest = click.Argument(["words"], nargs=-1, metavar=metavar, required=not metavar.startswith("["))
    own = [rest if each.name == "words" else each for each in command.params]

    def call(words: tuple[str, ...], namespace: str, **options: Any) -> object:  # noqa: ANN401 - whatever the command takes
        from tenantry.cli import approve

        if command.callback is None:
            return None
        target = named(click.get_current_context())
        namespace = str(paths.resolved(target, {"namespace": namespace}).get("namespace", namespace))
        asked = approve.selected(target, words, namespace)
        found = [f"{kinds.names_of(each.kind).short[0]}/{key}" for each in asked for key in each.keys]
        return command.callback(words=tuple(found), namespace="", **options)

    return click.Command(name, params=own, callback=call, help=text)


for _command, _name, _text in (
    (get, "get", "Show requests in one line each.\n\n\b\n  tenantry request get treq/acme-0f3a9c21 -o yaml"),
    (describe, "describe", "Show everything about a request.\n\n\b\n  tenantry request describe acme-0f3a9c21"),
    (delete, "delete", "Withdraw requests.\n\n\b\n  tenantry request delete rreq/edit-77b1d2e4 -n acme"),
    (wait, "wait", "Wait until requests are granted.\n\n\b\n  tenantry request wait acme-0f3a9c21 --timeout 1h"),
):
    request.add_command(_of_requests(_command, _name, "NAME... | KIND/NAME...", _text))
for _each in (tenant, role, clusterrole):
    request.add_command(spellings.moved(_each, _each.name or "", f"tenantry request create {_each.name}"))


HEADERS = ("NAME", "NAMESPACE", "WANTS", "DURATION", "REQUESTER", "DECISION", "BY", "READY", "AGE", "BECAUSE")
SHOWN = 40
"""How many characters of a justification the table shows."""


def row(view: RequestView, now: datetime) -> tuple[str, ...]:
    """Return a request's line in the table."""
    because = " ".join(view.justification.split())
    return (
        f"{kinds.names_of(kinds.find_kind(view.kind)).short[0]}/{view.name}",
        output.cell(view.namespace),
        view.wants,
        durations.text(view.duration_seconds) if view.duration_seconds else "-",
        output.cell(view.requester),
        view.decision,
        output.cell(view.decided_by),
        output.cell(view.ready),
        durations.age(view.created, now),
        output.cell(because if len(because) <= SHOWN else f"{because[: SHOWN - 1]}…"),
    )
