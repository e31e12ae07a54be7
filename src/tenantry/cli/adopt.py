"""`tenantry adopt`: gives the namespaces of a restored cluster back to their Tenants and Subnamespaces."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tenantry.api.errors import NotFound, TenantryError
from tenantry.api.kubernetes import Namespace
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.wording import shortened
from tenantry.cli import durations, flags, output, session
from tenantry.cli.completion import candidates
from tenantry.cli.delete import confirm
from tenantry.cli.diff import DIFFERENCES
from tenantry.cli.paths import TENANT_NAME
from tenantry.cli.target import Target, takes_target

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.views.restored import TenantAdoption


@click.command()
@takes_target
@click.argument("names", nargs=-1, metavar="[TENANT]...", type=TENANT_NAME, shell_complete=candidates.tenants)
@click.option("--plan", "plans", is_flag=True, help="Print what would be adopted, and change nothing.")
@flags.yes_option
@durations.timeout_option("2m", "Deadline until the adopted tenants are ready, as in 30s or 5m.")
@output.output_option("json")
def adopt(target: Target, *, names: tuple[str, ...], plans: bool, yes: bool, timeout: int, form: str | None) -> None:
    r"""Give the namespaces of a restored cluster back to their Tenants and Subnamespaces.

    After a restore by Velero or from YAML, every object has another uid. The operator leaves the restored namespaces as
    they are, until this command binds them by the names in their labels. No namespace is created or deleted, and pods
    keep running. A tenant is adopted whole, or not at all. Exit code of --plan: 0 nothing would be adopted, 1 something
    would.

    \b
      tenantry adopt --plan
      tenantry adopt acme --yes
    """
    found = session.run(target, lambda client: _read(client, names))
    if form:
        output.write(output.to_json(found))
    for each in found:
        for binding in each.namespaces if not form else ():
            held = "" if not each.blocks else "  (blocked)"
            output.write(f"namespace {binding.namespace}  ->  {binding.kind.lower()} {binding.key}{held}\n")
        for problem in each.blocks:
            output.talk(f"tenant {each.tenant!r}: blocked: {problem}")
    due = [each for each in found if not each.blocks]
    if plans:
        sys.exit(DIFFERENCES if found else 0)
    if due:
        many = sum(len(each.namespaces) for each in due)
        if not yes:
            told = f"{many} namespace{'' if many == 1 else 's'} of {shortened(each.tenant for each in due)}"
            confirm(f"Adopt {told}? What is in them stays as it is.", "nothing was adopted")
        session.run(target, lambda client: _adopt(client, due, seconds=timeout))
    held = [each.tenant for each in found if each.blocks]
    if held:
        raise TenantryError(
            f"not adopted: {shortened(held)}; the reasons are above: decide them, and repeat the command"
        )


async def _read(client: Client, names: Sequence[str]) -> list[TenantAdoption]:
    from tenantry.views import restored

    tenants = await client.list(Tenant)
    missing = sorted(set(names) - {each.metadata.name for each in tenants})
    if missing:
        raise NotFound(f"there is no tenant {missing[0]!r}: restore it first")
    subnamespaces, namespaces = await client.list(Subnamespace), await client.list(Namespace)
    lost = restored.lost(tenants, namespaces)
    if lost and not names:
        output.talk(f"left as they are, because their Tenants do not exist: namespaces {shortened(lost)}")
    asked = [each for each in tenants if not names or each.metadata.name in names]
    return restored.plan(asked, subnamespaces, namespaces)


async def _adopt(client: Client, due: Sequence[TenantAdoption], *, seconds: int) -> None:
    from tenantry.cli.imports import adoption

    cluster_uid = (await client.get(Namespace, "kube-system")).metadata.uid
    for each in due:
        await adoption.rebind(client, each, cluster_uid)
    await adoption.wait_for_bound(client, due, seconds=seconds)
