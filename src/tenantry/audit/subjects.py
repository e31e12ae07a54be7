"""Which namespaces an audit covers, as which user, and the whole course of one audit.

A tenant is audited as its first owner, in its core namespace: of all users of a tenant, owners have the most rights.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from tenantry.api import marks
from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.isolationreport import IsolationReport
from tenantry.api.kubernetes import Namespace, RoleBinding, Subject
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.tenant import Tenant
from tenantry.audit import report, runner
from tenantry.audit.attempts import may
from tenantry.audit.catalog import CHECKS
from tenantry.audit.check import AttemptOutcome
from tenantry.audit.gather import gather
from tenantry.audit.probe import run as probing
from tenantry.audit.probe.objects import ProbeImage
from tenantry.audit.verdict import Audit
from tenantry.engine.reader import ObjectReader
from tenantry.kube.client import Client

MEMBER = "tenantry-audit-member"
"""The user of attempts if the owner is a group: no real user has this name."""

_ACCOUNT = "system:serviceaccount:"


class AuditSubject(msgspec.Struct, frozen=True, kw_only=True):
    """A namespace to audit, and the user who makes the attempts.

    Args:
        namespace: The namespace.
        tenant: The namespace's tenant, "" for none.
        user: The user; "" for the user of the credentials.
        groups: The user's groups.
    """

    namespace: str
    tenant: str
    user: str = ""
    groups: tuple[str, ...] = ()


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an audit is run.

    Args:
        image: The image of the pods that attempts create.
        probe: The image of the pods that run, or the reason why there is none; None if no pods are to run.
        reports: Write an IsolationReport into each namespace.
        installation: How the installed objects differ from the shipped ones; None if the caller may not compare them.
    """

    image: str
    probe: ProbeImage | str | None = None
    reports: bool = False
    installation: tuple[str, ...] | None = None


async def select(reader: ObjectReader, tenant: str, namespace: str) -> list[AuditSubject]:
    """Return the subjects of an audit; those of all tenants if neither a tenant nor a namespace is named.

    Raises:
        InputError: The namespace belongs to another tenant, or the user may not list all tenants.
    """
    if not tenant and not namespace:
        try:
            return [_of_tenant(each) for each in await reader.list(Tenant)]
        except Forbidden as error:
            raise InputError(
                f"you may not list all tenants: name yours, as in `tenantry audit acme` ({error})"
            ) from error
    try:
        if not namespace:
            return [_of_tenant(await reader.get(Tenant, tenant))]
        return [await _of_namespace(reader, tenant, namespace)]
    except Forbidden:
        # An owner audits its own tenant: it may read neither the Tenant nor, perhaps, the namespace's labels.
        return [AuditSubject(namespace=namespace or tenant, tenant=tenant)]


def _of_tenant(tenant: Tenant) -> AuditSubject:
    name = tenant.metadata.name
    return _as_owner(AuditSubject(namespace=name, tenant=name), tenant.spec.owners[0])


async def _of_namespace(reader: ObjectReader, tenant: str, namespace: str) -> AuditSubject:
    labels = (await reader.get(Namespace, namespace)).metadata.labels
    subject = AuditSubject(namespace=namespace, tenant=labels.get(marks.TENANT, ""))
    if tenant and subject.tenant != tenant:
        raise InputError(f"the namespace {namespace!r} does not belong to the tenant {tenant!r}")
    if not subject.tenant:
        return subject
    try:
        owners = (await reader.get(RoleBinding, marks.OWNER_ROLE, namespace)).subjects
    except NotFound:
        return subject
    return _as_owner(subject, owners[0]) if owners else subject


def _as_owner(subject: AuditSubject, owner: Owner | Subject) -> AuditSubject:
    """Return a subject whose attempts are made as an owner, or as a member of a group that owns the namespace."""
    if owner.kind == OwnerKind.GROUP:
        return replace(subject, user=MEMBER, groups=(owner.name,))
    is_account = owner.kind == OwnerKind.SERVICE_ACCOUNT
    return replace(subject, user=f"{_ACCOUNT}{owner.namespace}:{owner.name}" if is_account else owner.name)


def impersonated_groups(subject: AuditSubject) -> tuple[str, ...]:
    """Return the groups to impersonate.

    The API server adds the groups of a ServiceAccount by itself only if the request names no groups.
    Source: Kubernetes, "User impersonation".
    """
    if not subject.groups or not subject.user.startswith(_ACCOUNT):
        return subject.groups
    namespace = subject.user.split(":")[2]
    return (*subject.groups, "system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")


async def require_reports(client: Client, subjects: Sequence[AuditSubject]) -> None:
    """Check, before any attempt, that the caller may write the IsolationReports.

    Raises:
        InputError: The caller may not.
    """
    for each in subjects:
        question = may("patch", IsolationReport.resource.plural, group=marks.GROUP, namespace=each.namespace)
        if (await runner.attempted(client, question)).outcome == AttemptOutcome.REFUSED:
            raise InputError(
                f"you may not write the IsolationReport in {each.namespace!r}, which is for administrators:"
                " leave out --report"
            )


async def audit(
    client: Client, subjects: Sequence[AuditSubject], options: AuditOptions, progress: runner.Progress
) -> list[Audit]:
    """Audit namespaces, one after the other.

    Args:
        client: The caller's client.
        subjects: The namespaces and the users.
        options: How to run it.
        progress: Called with a sentence when pods start, and when a report is written.

    Raises:
        InputError: A subject names no user, and the caller is an administrator.
    """
    audits: list[Audit] = []
    for each in subjects:
        audits.append(await _audit(client, each, options, progress))
        if options.reports:
            await report.write(client, audits[-1])
            progress(f"isolationreport/latest in {each.namespace!r} written")
    return audits


async def _audit(client: Client, subject: AuditSubject, options: AuditOptions, progress: runner.Progress) -> Audit:
    # A client of its own: impersonation is part of a connection, and the caller gathers as an administrator.
    connection = client.connection
    if subject.user:
        connection = replace(connection, impersonate=subject.user, impersonate_groups=impersonated_groups(subject))
    async with Client(connection, field_manager="tenantry-audit", max_connections=runner.AT_ONCE) as person:
        found, groups = await runner.require(person, subject.user)
        context = await gather(
            client,
            namespace=subject.namespace,
            user=found,
            groups=groups,
            tenant=subject.tenant,
            image=options.image,
            installation=options.installation,
        )
        findings = None
        if options.probe is not None:
            if isinstance(options.probe, ProbeImage) and context.real_nodes:
                progress(f"running pods in {subject.namespace!r} and beside it, for about half a minute")
            findings = await probing.probe(client, person, context, options.probe)
        return await runner.audit(person, context, CHECKS, findings)
