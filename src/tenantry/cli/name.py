"""`tenantry name`: the name of a Subnamespace's namespace, computed as the operator computes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tenantry.api import marks
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import ObjectMeta
from tenantry.api.subnamespace import Inheritance, InheritanceMode, Mode, Scope, Subnamespace, SubnamespaceSpec
from tenantry.api.tenant import Tenant
from tenantry.cli import output, paths, refusals, session
from tenantry.cli.completion import candidates
from tenantry.cli.target import Target, may_take_target
from tenantry.world.naming import child_name
from tenantry.world.validation import validate_subnamespace

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_UID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@click.command()
@may_take_target
@click.argument("parent", metavar="PARENT", shell_complete=candidates.namespaces)
@click.argument("child", metavar="[NAME]", required=False, default="")
@click.option("--tenant", default="", metavar="TENANT", help="Tenant of the parent (default: read from the cluster).")
@click.option("--tenant-uid", default="", metavar="UID", help="Uid of the tenant; then no cluster is needed.")
@click.option(
    "--cluster-uid",
    default="",
    metavar="UID",
    help="For a federated Subnamespace: uid of the namespace kube-system of its home cluster.",
)
def name(
    find: Callable[[], Target], *, parent: str, child: str, tenant: str, tenant_uid: str, cluster_uid: str
) -> None:
    r"""Print the name of the namespace of the Subnamespace NAME in the namespace PARENT; neither needs to exist.

    It is NAME-DIGITS. The digits are the first 16 of the SHA-256 of TENANT-UID/PARENT/NAME, with CLUSTER-UID/ before
    that for a federated Subnamespace. If the Subnamespace exists, the name is that of its namespace. PARENT/NAME is the
    same as PARENT NAME.

    \b
      tenantry name acme web
      tenantry name acme/web staging
      tenantry name acme/web/staging
      tenantry name acme web --tenant-uid 0b8b2b0e-6d5c-4e0c-9d55-0d2f8f7c1f64
    """
    if not child:
        parent, slash, child = parent.rpartition("/")
        if not slash:
            raise InputError(
                f"name both PARENT and NAME, as in `tenantry name {child} web`, or the path PARENT/NAME, as in"
                f" `tenantry name {child}/web`"
            )
    if tenant and tenant_uid:
        raise InputError("give either --tenant or --tenant-uid, not both")
    # Any valid spec: only the name is checked.
    inherits = Inheritance(role_bindings=InheritanceMode.SYNC)
    wanted = Subnamespace(
        metadata=ObjectMeta(name=child), spec=SubnamespaceSpec(mode=Mode.WORKSPACE, inheritance=inherits)
    )
    problems = validate_subnamespace(wanted)
    if problems:
        raise InputError(refusals.summary(f"Subnamespace {child!r}", problems))
    for flag, uid in (("--tenant-uid", tenant_uid), ("--cluster-uid", cluster_uid)):
        if uid and not _UID.fullmatch(uid):
            raise InputError(f"{flag} {uid!r} must be a metadata.uid, as in 0b8b2b0e-6d5c-4e0c-9d55-0d2f8f7c1f64")
    paths.check(parent)
    if tenant_uid and "/" in parent:
        raise InputError("with --tenant-uid no cluster is asked: PARENT must be the name of a namespace, not a path")
    if tenant_uid:
        output.write(child_name(tenant_uid, parent, child, cluster_uid))
        return

    async def work(client: Client) -> str:
        above = await paths.namespace_of(client, parent)
        uid = await _tenant_uid(client, above, tenant)
        return (
            await _existing(client, uid, above, child)
            if not cluster_uid
            else child_name(uid, above, child, cluster_uid)
        )

    output.write(session.run(find(), work))


async def _existing(client: Client, tenant_uid: str, parent: str, child: str) -> str:
    """Return the name for a Subnamespace as it is on this cluster; without one, for a local one to come."""
    try:
        found = await client.get(Subnamespace, child, parent)
    except (NotFound, Forbidden):
        return child_name(tenant_uid, parent, child)
    if found.status.namespace:
        return found.status.namespace  # a moved or adopted namespace keeps its name
    if found.spec.namespace_name:
        return found.spec.namespace_name
    home = ""
    if found.spec.scope is Scope.FEDERATED:
        home = (await client.get(Namespace, parent)).metadata.labels.get(marks.CLUSTER_UID, "")
    return child_name(tenant_uid, parent, child, home)


async def _tenant_uid(client: Client, parent: str, tenant: str) -> str:
    if tenant:
        return (await client.get(Tenant, tenant)).metadata.uid
    hint = "name the tenant with --tenant or --tenant-uid"
    try:
        namespace = await client.get(Namespace, parent)
    except NotFound as error:
        raise NotFound(f"there is no namespace {parent!r}; for one that is still to come, {hint}") from error
    except Forbidden as error:
        raise Forbidden(
            f"you may not read namespace {parent!r}, which has the uid of its tenant: {hint}; `tenantry my` shows the"
            f" names of your own namespaces; the API server said: {error}",
            status=error.status,
        ) from error
    uid = namespace.metadata.labels.get(marks.TENANT_UID, "")
    if not uid:
        raise InputError(f"the namespace {parent!r} does not belong to a tenant; {hint}")
    return uid
