"""`tenantry kubeconfig`: kubeconfigs for other tools, of an administrator or of a tenant's user."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError, NotFound
from tenantry.api.owner import OwnerKind
from tenantry.cli import controlplane, durations, output, place, session
from tenantry.cli.completion import candidates
from tenantry.cli.paths import TENANT_OR_PATH
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.cli import certificates
    from tenantry.kube.client import Client


@click.command()
@takes_target
@click.option(
    "--tenant",
    metavar="TENANT",
    type=TENANT_OR_PATH,
    shell_complete=candidates.tenants,
    help="Tenant of the user, or the path to a namespace of its tree.",
)
@place.takes_namespace("Namespace of the user, in a tenant's tree.")
@click.option(
    "--user",
    metavar="USER",
    help="With --tenant or -n: name of the user (default: the first owner of kind User). If the tenant has a control"
    " plane of its own: a user of the API server of the host.",
)
@click.option(
    "--expires",
    type=durations.DURATION,
    metavar="DURATION",
    help="With --tenant or -n: lifetime from 10m to 7d (default: 1h).",
)
def kubeconfig(target: Target, *, tenant: str | None, namespace: str, user: str | None, expires: int | None) -> None:
    r"""Print a kubeconfig: the administrator's of a local cluster, or with --tenant or -n that of a tenant's user.

    If the tenant has a control plane of its own, and --user is not given, the kubeconfig is that of the control plane.

    The kubeconfig of a user has a client certificate that the cluster signs. You need the rights to request and to
    approve it. It cannot be revoked before it expires.

    \b
      tenantry kubeconfig --tenant acme > acme.kubeconfig
      kubectl --kubeconfig acme.kubeconfig get pods
      tenantry kubeconfig -n acme/shop > shop.kubeconfig
      tenantry kubeconfig -n shop-48940d7599eb15bb --user bob > bob.kubeconfig
    """
    if tenant is not None and namespace:
        raise InputError("give either --tenant or --namespace, not both: a tenant's core namespace has its name")
    if tenant is not None or namespace:
        where = tenant or namespace
        own = session.run(target, lambda client: controlplane.kubeconfig(client, where)) if user is None else ""
        if own:
            if expires is not None:
                raise InputError("--expires needs --user: the kubeconfig of a control plane has no lifetime of its own")
            output.write(own)
            return
        _print_user(target, tenant or "", namespace, user, 3600 if expires is None else expires)
        return
    if user is not None or expires is not None:
        raise InputError("--user and --expires need --tenant or --namespace")
    if target.local_name is None or target.kubeconfig is None:
        raise InputError(
            "this cluster is not a local one: its kubeconfig is yours already; choose a local one with --cluster, or a"
            " tenant with --tenant"
        )
    click.echo(target.kubeconfig.read_text(), nl=False)


def _print_user(target: Target, tenant: str, namespace: str, given: str | None, seconds: int) -> None:
    from tenantry.cli import certificates

    async def work(client: Client) -> certificates.Issued:
        place = await (_tenant(client, tenant) if tenant else _namespace(client, namespace))
        user = certificates.default_user(place) if given is None else given
        certificates.check_request(user, seconds)
        for warning in certificates.warnings(place, user):
            output.talk(f"warning: {warning}")
        return await certificates.issue(client, place.tenant, user, seconds=seconds)

    # Before a cluster is asked: a wrong name or lifetime needs none.
    if given is not None:
        certificates.check_request(given, seconds)
    issued = session.run(target, work)
    output.talk(f"user {issued.user!r}, until {issued.expires:%Y-%m-%d %H:%M} UTC")
    output.write(output.to_yaml([certificates.kubeconfig_of(target.connection(), tenant or namespace, issued)]))


async def _tenant(client: Client, name: str) -> certificates.CertificateScope:
    from tenantry.api.tenant import Tenant
    from tenantry.cli.certificates import CertificateScope

    tenant = await client.get(Tenant, name)
    users = tuple(owner.name for owner in tenant.spec.owners if owner.kind is OwnerKind.USER)
    return CertificateScope(told=f"tenant {name!r}", tenant=name, users=users, is_suspended=tenant.spec.suspended)


async def _namespace(client: Client, name: str) -> certificates.CertificateScope:
    """Return a namespace of a tree with the users that own it: its own, and those that it inherits.

    Raises:
        InputError: The namespace does not belong to a tenant.
    """
    from tenantry.api import marks
    from tenantry.api.kubernetes import Namespace, RoleBinding
    from tenantry.cli.certificates import CertificateScope
    from tenantry.controllers.tenantnamespace import OWNER_BINDING

    labels = (await client.get(Namespace, name)).metadata.labels
    tenant = labels.get(marks.TENANT, "")
    if not tenant or labels.get(marks.MANAGED_BY) != marks.MANAGER:
        raise InputError(f"the namespace {name!r} does not belong to a tenant; `tenantry tree` draws those that do")
    try:
        subjects = (await client.get(RoleBinding, OWNER_BINDING, name)).subjects
    except NotFound:
        subjects = ()
    users = tuple(subject.name for subject in subjects if subject.kind == OwnerKind.USER)
    suspended = marks.SUSPENDED in labels
    return CertificateScope(told=f"namespace {name!r}", tenant=tenant, users=users, is_suspended=suspended)
