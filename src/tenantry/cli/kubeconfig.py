"""`tenantry kubeconfig`: credentials for other tools, an administrator's or a tenant's user's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tenantry.api.errors import InputError
from tenantry.cli import complete, durations, output, session
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.kube.client import Client


@click.command()
@takes_target
@click.option("--tenant", metavar="TENANT", shell_complete=complete.tenants, help="For a user of this tenant.")
@click.option("--user", metavar="USER", help="With --tenant: who to be.  [default: its first owner that is a User]")
@click.option(
    "--expires", type=durations.DURATION, metavar="DURATION", help="With --tenant: from 10m to 7d.  [default: 1h]"
)
def kubeconfig(target: Target, *, tenant: str | None, user: str | None, expires: int | None) -> None:
    r"""Print a kubeconfig: the administrator's of a local cluster, or with --tenant that of a tenant's user.

    A user's holds a client certificate that the cluster signs, with your own rights to ask for it and to approve it. It
    cannot be taken back before it expires.

    \b
      tenantry kubeconfig --tenant acme > acme.kubeconfig
      kubectl --kubeconfig acme.kubeconfig get pods
    """
    if tenant is not None:
        _print_tenant(target, tenant, user, 3600 if expires is None else expires)
        return
    if user is not None or expires is not None:
        raise InputError("--user and --expires need --tenant")
    if target.local_name is None or target.kubeconfig is None:
        raise InputError(
            "this cluster is not a local one: its kubeconfig is yours already; choose a local one with --name, or a"
            " tenant with --tenant"
        )
    click.echo(target.kubeconfig.read_text(), nl=False)


def _print_tenant(target: Target, name: str, given: str | None, seconds: int) -> None:
    from tenantry.api.tenant import Tenant
    from tenantry.cli import certificates

    async def work(client: Client) -> certificates.Issued:
        found = await client.get(Tenant, name)
        user = certificates.default_user(found) if given is None else given
        certificates.check_request(user, seconds)
        for warning in certificates.warnings(found, user):
            output.talk(f"warning: {warning}")
        return await certificates.issue(client, name, user, seconds=seconds)

    if given is not None:
        certificates.check_request(given, seconds)
    issued = session.run(target, work)
    output.talk(f"user {issued.user!r}, until {issued.expires:%Y-%m-%d %H:%M} UTC")
    output.write(output.to_yaml([certificates.kubeconfig_of(target.connection(), name, issued)]))
