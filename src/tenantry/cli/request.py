"""`tenantry request` and `tenantry requests`: requests tenants and roles, and lists the requests."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api.errors import InputError
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.names import DNS_LABEL
from tenantry.api.owner import OwnerKind
from tenantry.api.quota import Quota
from tenantry.api.requests import (
    LONGEST_NAME,
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
from tenantry.cli import durations, flags, kinds, output, place, session
from tenantry.cli.target import Target, takes_target
from tenantry.local.progress import StreamProgress

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.views.requests import RequestView

PROGRESS_SECONDS = 0.25
"""How often the progress of a long wait is shown."""

_because = click.option("--because", default="", metavar="TEXT", help="Reason, for the approver.")
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
    """Request a tenant or a role; an approver decides, and `tenantry requests` shows the requests."""


@request.command()
@takes_target
@click.argument("tenant_name", metavar="TENANT")
@flags.owner_option("Owner: ada, User:ada or Group:devs (default: you).")
@flags.quota_option("Quota of the whole tenant, as in cpu=4,memory=8Gi,pods=50.")
@_because
@_duration
@_named
@output.output_option("json", "yaml", "name")
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
      tenantry request tenant acme --quota cpu=4,memory=8Gi --because "our web shop"
    """
    spec = TenantRequestSpec(
        tenant=tenant_name,
        owners=tuple(flags.parse_owner(owner) for owner in owners),
        quota=Quota(hard=flags.parse_quota(quotas)),
        justification=because,
        duration_seconds=seconds,
    )
    _ask(target, TenantRequest(metadata=_meta(own_name, tenant_name), spec=spec), form)


@request.command()
@takes_target
@click.argument("role_name", metavar="ROLE")
@_namespace
@flags.choice_option("--kind", RoleKind.ROLE, "Kind of the role; a ClusterRole is bound in the namespace.")
@_subjects
@_because
@_duration
@_named
@output.output_option("json", "yaml", "name")
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
      tenantry request role edit --kind ClusterRole -n acme --for 8h --because "the incident of tonight"
    """
    spec = RoleRequestSpec(
        role_ref=RequestedRole(kind=RoleKind(kind), name=role_name),
        subjects=parse_subjects(subjects),
        justification=because,
        duration_seconds=seconds,
    )
    where = place.parent(target, namespace)
    _ask(target, RoleRequest(metadata=_meta(own_name, role_name, where), spec=spec), form)


@request.command()
@takes_target
@click.argument("role_name", metavar="CLUSTERROLE")
@_subjects
@_because
@_duration
@_named
@output.output_option("json", "yaml", "name")
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
      tenantry request clusterrole view --for 2h --because "looking for the leak"
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


@click.command()
@takes_target
@_namespace
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="List requests in all namespaces.")
@click.option("--pending", is_flag=True, help="List only requests without a decision.")
@output.output_option("json", "yaml", "name")
def requests(target: Target, *, namespace: str, everywhere: bool, pending: bool, form: str | None) -> None:
    r"""Print requests, the oldest first; without -n, in all namespaces that you may read.

    \b
      tenantry requests --pending
      tenantry requests -n acme
    """
    if namespace and everywhere:
        raise InputError("give either --namespace or --all-namespaces, not both")
    chosen = namespace or ("" if everywhere else place.context_namespace(target))
    from tenantry.views import requests as view
    from tenantry.views.acting import readable

    async def read(client: Client) -> view.ReadRequests:
        own = partial(readable, client, TenantRequest.resource)
        # The namespace of the context says where a user works, not that the requests of the cluster are not wanted.
        return await view.read(client, chosen, own, of_cluster=not namespace)

    found = session.run(target, read)
    if found.unread:
        output.talk(f"not shown, because you may not list them: {', '.join(found.unread)}")
    if found.own_only:
        output.talk("only your own TenantRequests are shown, because you may not list those of other users")
    shown = [each for each in found.requests if not pending or each.status.decision is Decision.PENDING]
    if form == "name":
        output.write_lines(kinds.full_name(type(each), each.metadata.name) for each in shown)
    elif form:
        output.print_objects([output.whole(each) for each in shown], form, single=False)
    elif shown:
        now = datetime.now(UTC)
        output.show(output.table(HEADERS, [row(view.view(each), now) for each in shown]))
    else:
        output.talk("no request waits for a decision" if pending else "no requests found")


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
