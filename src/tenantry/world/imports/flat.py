"""Builds trees from tenants whose namespaces have no order: pure.

Each namespace becomes a Workspace below the core namespace; one of the tenant's name becomes the core namespace.

Quota: the other tools limit a tenant as a whole, and Tenantry divides. A namespace gets what it uses, and all of them
get equal parts of what is left, so that each can grow. A namespace with a quota of its own keeps it. The sum never
exceeds the quota of the tenant.

    requests.cpu 10, three namespaces use 4, 1 and 0, the last has its own quota of 2  →  5.5, 2.5 and 2
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

import msgspec

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.model import ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.quota import Quota
from tenantry.api.rules import Rules
from tenantry.api.subnamespace import (
    MAX_NAME,
    Adoption,
    Inheritance,
    InheritanceMode,
    Mode,
    Subnamespace,
    SubnamespaceSpec,
)
from tenantry.api.tenant import (
    ContainerDefaults,
    Isolation,
    MarkRules,
    NamespaceRules,
    NetworkIsolation,
    Tenant,
    TenantQuota,
    TenantSpec,
)
from tenantry.api.wording import shortened, visible
from tenantry.world import quantity, quota
from tenantry.world.imports.claims import check_keys, check_name, is_free
from tenantry.world.imports.findings import FindingWeight, ImportFindings
from tenantry.world.imports.form import ImportedChild, ImportedObject, ImportedTree, ImportOptions, short_name
from tenantry.world.imports.objects import SourceObjects
from tenantry.world.validation import validate_subnamespace, validate_tenant

Quantities = dict[str, str]
"""Normal quota key to canonical quantity."""

MOST_KEYS = 16
INHERITED = Inheritance(
    role_bindings=InheritanceMode.SYNC,
    network_policies=InheritanceMode.SYNC,
    limit_ranges=InheritanceMode.SYNC,
)
"""What the tools keep in each namespace of a tenant."""


class FlatTenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant of another tool.

    Args:
        name: Its name in Tenantry.
        told: It in words, for messages.
        namespaces: The existing namespaces.
        owners: Its owners.
        hard: The quota of the whole tenant.
        shares: Namespace to the quota that the other tool gives to it alone.
        max_count: The most namespaces; 0 for no limit.
        labels: What every namespace has.
        annotations: What every namespace has.
        rules: What workloads may request.
        container_defaults: Requests and limits of containers.
        suspended: Whether its users are locked out.
        objects: What is created in its namespaces.
    """

    name: str
    told: str
    namespaces: Sequence[str]
    owners: tuple[Owner, ...]
    hard: Quantities
    shares: Mapping[str, Quantities] = {}
    max_count: int = 0
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    rules: Rules = Rules()
    container_defaults: ContainerDefaults = ContainerDefaults()
    suspended: bool = False
    objects: tuple[ImportedObject, ...] = ()


def chosen(names: Mapping[str, str], options: ImportOptions, kind: str) -> list[str]:
    """Return the tenants to import, by their names in the other tool.

    Args:
        names: Name in the other tool to the name in Tenantry.
        options: With the requested names, in Tenantry.
        kind: ImportTool and kind, for messages.

    Raises:
        InputError: A requested tenant does not exist, or there is none at all.
    """
    unknown = sorted(set(options.roots) - set(names.values()))
    if unknown:
        raise InputError(
            f"there is no {kind} {unknown[0]!r}; there are {shortened(map(repr, names.values())) or 'none'}"
        )
    if not names:
        raise InputError(f"no {kind} found; choose another cluster with --kubeconfig or --context, or other files")
    return sorted(name for name, ours in names.items() if not options.roots or ours in options.roots)


def limits(hard: Mapping[str, str], told: str, path: str, findings: ImportFindings) -> Quantities:
    """Return a quota with normal keys; a key that Tenantry does not count is reported."""
    found: Quantities = {}
    for key, amount in sorted(hard.items()):
        try:
            normal, value = quota.normal_key(key), quantity.canonical(amount)
            if quantity.parse(value) < 0:
                raise InputError("a quota must not be negative")  # noqa: TRY301 - reported like the others
        except InputError as error:
            findings.add(FindingWeight.LOST, told, f"{path}[{visible(repr(key))}]: not carried over: {error}")
            continue
        found[normal] = quantity.least(found[normal], value) if normal in found else value
    return found


def owner_of(kind: str, name: str, namespace: str = "") -> Owner | None:
    """Return an owner; None if a Tenant must not have it."""
    if kind not in set(OwnerKind) or not name:
        return None
    prefix = "system:serviceaccount:"
    if kind == OwnerKind.SERVICE_ACCOUNT and name.startswith(prefix):
        namespace, _, name = name.removeprefix(prefix).partition(":")
    if kind == OwnerKind.SERVICE_ACCOUNT:
        return Owner(kind=OwnerKind.SERVICE_ACCOUNT, name=name, namespace=namespace) if namespace and name else None
    return None if name.startswith(("system:", "tenantry:")) else Owner(kind=OwnerKind(kind), name=name)


def tree(flat: FlatTenant, world: SourceObjects, options: ImportOptions, findings: ImportFindings) -> ImportedTree:
    """Return the tree of a tenant.

    Raises:
        InputError: The tenant cannot be imported as it is; the message names it and what to do.
    """
    check_name(flat.name, flat.told)
    owners = options.owners or flat.owners
    if not owners:
        raise InputError(
            f"{flat.told} has no owner that may own a Tenant: name owners with --owner, and the tenant"
            f" {flat.name!r} if others have owners of their own"
        )
    has_core = flat.name in flat.namespaces
    if not has_core and not is_free(flat.name, world.namespaces):
        findings.add(
            FindingWeight.BLOCKS,
            flat.told,
            f"there is a namespace {flat.name!r} that does not belong to it, and a Tenant's core namespace has the"
            " Tenant's name: make it a namespace of this tenant, or delete it",
        )
    labels = _marks(flat, "labels", flat.labels, findings)
    annotations = _marks(flat, "annotations", flat.annotations, findings)
    shares = _divide(flat, world, findings, fit=options.fit)
    children = [
        _child(flat, namespace, shares[namespace], labels, annotations)
        for namespace in flat.namespaces
        if namespace != flat.name
    ]
    namespaces = NamespaceRules(max_count=flat.max_count)
    if labels:
        namespaces = msgspec.structs.replace(namespaces, labels=MarkRules(allowed=tuple(sorted(labels))))
    if annotations:
        namespaces = msgspec.structs.replace(namespaces, annotations=MarkRules(allowed=tuple(sorted(annotations))))
    tenant = Tenant(
        metadata=ObjectMeta(name=flat.name),
        spec=TenantSpec(
            owners=owners,
            quota=TenantQuota(hard={**flat.hard}),
            container_defaults=flat.container_defaults,
            isolation=Isolation(network=options.network),
            namespaces=namespaces,
            rules=flat.rules,
            suspended=flat.suspended,
        ),
    )
    _check(flat, tenant, children)
    _tell(flat, tenant, children, findings, has_core=has_core)
    return ImportedTree(tenant, children, has_core, flat.objects)


def _check(flat: FlatTenant, tenant: Tenant, children: Sequence[ImportedChild]) -> None:
    """Check that the API server takes what was planned, before anything is created.

    Raises:
        InputError: It does not.
    """
    problems = [*validate_tenant(tenant)]
    problems += [each for child in children for each in validate_subnamespace(child.subnamespace)]
    if problems:
        raise InputError(f"{flat.told} cannot be imported: {visible(str(problems[0]))}; change it in the other tool")


def _child(
    flat: FlatTenant, namespace: str, share: Quantities, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> ImportedChild:
    spec = SubnamespaceSpec(
        mode=Mode.WORKSPACE,
        inheritance=INHERITED,
        quota=Quota(hard={**share}),
        labels={**labels},
        annotations={**annotations},
        adopt=Adoption(namespace=namespace),
    )
    metadata = ObjectMeta(name=short_name(namespace), namespace=flat.name)
    return ImportedChild(namespace, Subnamespace(metadata=metadata, spec=spec))


def _marks(flat: FlatTenant, what: str, given: Mapping[str, str], findings: ImportFindings) -> dict[str, str]:
    check_keys(list(given), f"{flat.told}: a map of {what} for namespaces")
    kept: dict[str, str] = {}
    for key, value in sorted(given.items()):
        if marks.is_protected(key):
            text = f"{what[:-1]} {key}: not carried over: only administrators set it; existing namespaces keep it"
            findings.add(FindingWeight.LOST, flat.told, text)
        elif len(kept) == MOST_KEYS:
            text = (
                f"{what[:-1]} {visible(key)}: not carried over: a Tenant allows at most {MOST_KEYS} keys; existing"
                " namespaces keep it"
            )
            findings.add(FindingWeight.LOST, flat.told, text)
        else:
            kept[key] = value
    return kept


def _tell(
    flat: FlatTenant, tenant: Tenant, children: Sequence[ImportedChild], findings: ImportFindings, *, has_core: bool
) -> None:
    note = FindingWeight.NOTE
    if tenant.spec.isolation.network is NetworkIsolation.OPEN:
        text = "network isolation is Open: only NetworkPolicies limit connections, as before; see --network"
        findings.add(note, flat.told, text)
    if not has_core:
        text = "its core namespace, which has the Tenant's name, is created; it is empty"
        findings.add(note, flat.told, text)
    if any(len(child.namespace) > MAX_NAME for child in children):
        text = f"Subnamespaces of longer namespaces have names of at most {MAX_NAME} characters; namespaces keep theirs"
        findings.add(note, flat.told, text)
    text = (
        "what it does not limit follows TenancyDefaults and the Baseline standard from now on: new Services are"
        " ClusterIP, new pods are not privileged; see spec.rules"
    )
    findings.add(note, flat.told, text)


# -- quota ----------------------------------------------------------------------------------------


def _divide(flat: FlatTenant, world: SourceObjects, findings: ImportFindings, *, fit: bool) -> dict[str, Quantities]:
    """Return the share of each namespace; that of the core namespace is what the others leave."""
    shares: dict[str, Quantities] = {name: {} for name in flat.namespaces}
    used = {name: world.usage.get(name, {}) for name in flat.namespaces}
    for key, whole in sorted(flat.hard.items()):
        given = _parts(flat, key, quantity.parse(whole), used, findings, fit=fit)
        for name, value in given.items():
            if value:
                shares[name][key] = quantity.write(value, binary=is_binary(key))
    for name, own in sorted(flat.shares.items()):
        unlimited = sorted(set(own) - set(flat.hard))
        if unlimited:
            text = (
                f"quota of {shortened(unlimited)} of the namespace {name!r}: not carried over: a share is a part of"
                " the Tenant's quota, which has none of it; add it there"
            )
            findings.add(FindingWeight.LOST, flat.told, text)
    return shares


def _parts(
    flat: FlatTenant,
    key: str,
    whole: Fraction,
    used: Mapping[str, Mapping[str, Fraction]],
    findings: ImportFindings,
    *,
    fit: bool,
) -> dict[str, Fraction]:
    own = {name: quantity.parse(share[key]) for name, share in flat.shares.items() if key in share}
    rest = [name for name in flat.namespaces if name not in own]
    least = {name: used[name].get(key, Fraction(0)) for name in rest}
    wanted = {**own, **least}
    needed = sum(wanted.values(), Fraction(0))
    if needed > whole:
        has = f"{key} is {_text(key, whole)}, and {_text(key, needed)} is needed by its namespaces"
        if not fit:
            text = f"{has}; Tenantry divides quotas: raise it, lower those of the namespaces, or say --fit"
            findings.add(FindingWeight.BLOCKS, flat.told, text)
        else:
            findings.add(FindingWeight.NOTE, flat.told, f"{has}; the shares are made smaller")
        # Never more than there is: the API server would refuse the sum, and running pods stay.
        return {name: _floor(key, value * whole / needed) for name, value in wanted.items()}
    if not rest:
        return own
    free = _floor(key, (whole - needed) / len(rest))
    return {**own, **{name: value + free for name, value in least.items()}}


def _floor(key: str, value: Fraction) -> Fraction:
    """Round down to thousandths of a CPU, or to whole units of other keys."""
    steps = 1000 if key.endswith(".cpu") else 1
    return Fraction(value * steps // 1, steps)


def is_binary(key: str) -> bool:
    """Return whether a key counts bytes."""
    return "memory" in key or "storage" in key or "hugepages" in key


def _text(key: str, value: Fraction) -> str:
    return quantity.write(value, binary=is_binary(key))
