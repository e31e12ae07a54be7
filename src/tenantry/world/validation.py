"""Predicts which objects the API server rejects: pure.

The rules are those of the CRDs (`validations` and `Meta` in `tenantry.api`), written a second time because CEL runs
only in the server. Tests give both the same tables of objects and compare the verdicts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec
from msgspec import UNSET

from tenantry.api import marks
from tenantry.api.clustertemplate import NAME_PATTERN as TEMPLATE_PATTERN
from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.controlplanechoice import MAX_NAME as MAX_PLANE_NAME
from tenantry.api.controlplanechoice import NOT_OF_A_CHILD, TOO_LONG, ControlPlaneChoice
from tenantry.api.dedicatedcluster import MAX_NAME as MAX_CLUSTER_NAME
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import InputError
from tenantry.api.names import DNS_LABEL, DNS_SUBDOMAIN
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.planeversions import VERSION_PATTERN
from tenantry.api.quota import CONTAINER_RESOURCE
from tenantry.api.subnamespace import (
    MAX_NAME,
    NEVER_INHERITED,
    RUNS_PODS,
    Inheritance,
    InheritanceMode,
    Mode,
    Subnamespace,
    SubnamespaceSpec,
)
from tenantry.api.tenant import CLAIM_NAME_TOO_LONG, CLUSTER_NAME_TOO_LONG, MAX_CLAIM_NAME, NodesChoice, Tenant
from tenantry.api.tenantresourcequota import Adjustment
from tenantry.api.virtualcontrolplane import DatastoreKind, VirtualControlPlane
from tenantry.world import quantity, quota
from tenantry.world.rulechecks import is_pattern, wrong_isolation, wrong_rules

_LABEL = re.compile(DNS_LABEL, re.ASCII)
_SUBDOMAIN = re.compile(DNS_SUBDOMAIN, re.ASCII)
_RESOURCE = re.compile(CONTAINER_RESOURCE, re.ASCII)
_NEVER_INHERITED = re.compile(NEVER_INHERITED, re.ASCII)
_RUNS_PODS = re.compile(RUNS_PODS, re.ASCII)
# Python reads offsets of 99 minutes, which CEL does not, nor RFC 3339.
_OFFSET = r"[+-]([01][0-9]|2[0-3]):[0-5][0-9]"
_INSTANT = re.compile(rf"[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}([.][0-9]+)?(Z|{_OFFSET})")
_LABEL_LENGTH = 63
_MOST_KEYS = 64
"""maxItems and maxProperties of the models."""


class Problem(msgspec.Struct, frozen=True):
    """One problem of an object.

    Args:
        path: The JSON path of the field, "" for the object as a whole.
        message: What it must or must not be.
    """

    path: str
    message: str

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.path} {self.message}" if self.path else self.message


def validate_tenant(tenant: Tenant) -> list[Problem]:
    """Return everything that is wrong with a tenant, in the order of its fields; [] for a good one."""
    spec = tenant.spec
    return [
        *_name(tenant.metadata.name),
        *_plane_name(tenant),
        *_claim_name(tenant),
        *_owners(spec.owners),
        *_quantities(tenant),
        *(Problem(*each) for each in wrong_isolation(spec.isolation, "spec.isolation")),
        *_limits(tenant),
        *(Problem(*each) for each in wrong_rules(spec.rules, "spec.rules")),
        *_instant("spec.expiresAt", spec.expires_at),
    ]


def validate_subnamespace(value: Subnamespace) -> list[Problem]:
    """Return everything that is wrong with a new Subnamespace, in the order of its fields; [] for a good one."""
    spec = value.spec
    return [
        *_child_name(value.metadata.name),
        *_exact_name(value.spec),
        *_plane_name(value),
        *_child_owners(spec),
        *_inheritance(spec.mode, spec.inheritance),
        *_plane_bindings(spec),
        *_keys("spec.quota.hard", spec.quota.hard),
        *_map("spec.quota.hard", spec.quota.hard),
        *(Problem(*each) for each in wrong_rules(spec.rules, "spec.rules")),
        *_marks("spec.labels", spec.labels),
        *_marks("spec.annotations", spec.annotations),
        *_instant("spec.expiresAt", spec.expires_at),
        *_adoption(spec),
    ]


def validate_plane(value: VirtualControlPlane) -> list[Problem]:
    """Return what is wrong with a VirtualControlPlane of which flags give the name, the version and the replicas."""
    name, spec = value.metadata.name, value.spec
    problems: list[Problem] = []
    if not _LABEL.fullmatch(name) or len(name) > MAX_PLANE_NAME:
        form = f"a DNS label of at most {MAX_PLANE_NAME} lower-case letters, digits and -"
        problems.append(Problem("metadata.name", f"must be {form}, and begin and end with a letter or a digit"))
    if not re.fullmatch(VERSION_PATTERN, spec.version):
        problems.append(Problem("spec.version", f"must be a minor version, as in 1.36; it is {spec.version!r}"))
    if spec.replicas > 1 and spec.datastore.kind is DatastoreKind.SQLITE:
        problems.append(Problem("spec.replicas", "must be 1, unless the datastore is SharedEtcd, OwnEtcd or External"))
    return problems


def validate_cluster(value: DedicatedCluster) -> list[Problem]:
    """Return what is wrong with a DedicatedCluster of which flags give the name, the template and the version."""
    name, spec = value.metadata.name, value.spec
    problems: list[Problem] = []
    if not _LABEL.fullmatch(name) or len(name) > MAX_CLUSTER_NAME:
        form = f"a DNS label of at most {MAX_CLUSTER_NAME} lower-case letters, digits and -"
        problems.append(Problem("metadata.name", f"must be {form}, and begin and end with a letter or a digit"))
    if not re.fullmatch(VERSION_PATTERN, spec.version):
        problems.append(Problem("spec.version", f"must be a minor version, as in 1.36; it is {spec.version!r}"))
    if not re.fullmatch(TEMPLATE_PATTERN, spec.template):
        problems.append(Problem("spec.template", f"must be the name of a ClusterTemplate; it is {spec.template!r}"))
    return problems


def validate_template(value: ClusterTemplate) -> list[Problem]:
    """Return what is wrong with the name, the versions and the limits of a ClusterTemplate; [] for a good one."""
    name, spec = value.metadata.name, value.spec
    problems: list[Problem] = []
    if not name or not re.fullmatch(TEMPLATE_PATTERN, name):
        told = "must be a DNS label of at most 63 lower-case letters, digits and -"
        problems.append(Problem("metadata.name", told))
    problems += [
        Problem(f"spec.versions[{index}]", f"must be a minor version, as in 1.36; it is {each!r}")
        for index, each in enumerate(spec.versions)
        if not each or not re.fullmatch(VERSION_PATTERN, each)
    ]
    most, has = spec.limits, spec.defaults
    if most.replicas is not UNSET and has.replicas > most.replicas:
        problems.append(Problem("spec.defaults.replicas", "must be at most limits.replicas"))
    if has.replicas > 1 and has.datastore.kind is DatastoreKind.SQLITE:
        told = "must be 1, unless the datastore is SharedEtcd, External or, on a local cluster, OwnEtcd"
        problems.append(Problem("spec.defaults.replicas", told))
    if most.after_idle_seconds is not UNSET and not 0 < has.after_idle_seconds <= most.after_idle_seconds:
        told = "must be more than 0, and at most limits.afterIdleSeconds"
        problems.append(Problem("spec.defaults.afterIdleSeconds", told))
    if most.datastores and has.datastore.kind not in most.datastores:
        problems.append(Problem("spec.defaults.datastore.kind", "must be one of limits.datastores"))
    return problems


def validate_adjustment(value: Adjustment, path: str) -> list[Problem]:
    """Return everything that is wrong with a change of a tenant's quota; [] for a good one."""
    problems: list[Problem] = []
    if not 1 <= len(value.name) <= _LABEL_LENGTH:
        problems.append(Problem(f"{path}.name", "must be 1 to 63 characters long"))
    where = f"{path}.resources"
    problems += _keys(where, value.resources)
    for key, amount in value.resources.items():
        try:
            quantity.parse(amount)
        except InputError as error:
            problems.append(Problem(f"{where}[{key}]", f"must be a quantity: {error}"))
    return [*problems, *_instant(f"{path}.expiresAt", value.expires_at)]


def _name(name: str) -> Iterator[Problem]:
    path = "metadata.name"
    if not name:
        yield Problem(path, "must be given")
    elif not _LABEL.fullmatch(name) or len(name) > _LABEL_LENGTH:
        yield Problem(
            path,
            f"is {name!r}; it must be a DNS label (at most 63 lower-case letters, digits and -), because the tenant's"
            " namespace has the same name",
        )
    elif marks.is_reserved(name):
        yield Problem(
            path,
            f"is {name!r}; it must not be default nor begin with kube- or tenantry-, which are reserved:"
            " choose another name",
        )


def _owners(owners: tuple[Owner, ...]) -> Iterator[Problem]:
    path = "spec.owners"
    if not owners:
        yield Problem(path, "must have at least one owner, as in {kind: User, name: ada}")
    if len(owners) > _MOST_KEYS:
        yield Problem(path, f"has {len(owners)} items; it may have at most {_MOST_KEYS}: use a Group")
    for index, owner in enumerate(owners):
        yield from _owner(f"{path}[{index}]", owner)


def _owner(path: str, owner: Owner) -> Iterator[Problem]:
    if not owner.name:
        yield Problem(f"{path}.name", "must not be empty")
    if len(owner.name) > 253:  # noqa: PLR2004 - maxLength of the model
        yield Problem(f"{path}.name", "must be at most 253 characters long")
    if len(owner.namespace) > _LABEL_LENGTH:
        yield Problem(f"{path}.namespace", "must be at most 63 characters long")
    if owner.kind is OwnerKind.SERVICE_ACCOUNT:
        if not owner.namespace:
            yield Problem(f"{path}.namespace", "must be given for a ServiceAccount")
        elif not _LABEL.fullmatch(owner.namespace):
            yield Problem(f"{path}.namespace", f"is {owner.namespace!r}; it must be a namespace's name")
        if owner.name and not _SUBDOMAIN.fullmatch(owner.name):
            yield Problem(f"{path}.name", f"is {owner.name!r}; it must be a ServiceAccount's name")
        return
    if owner.namespace:
        yield Problem(f"{path}.namespace", f"must not be given for a {owner.kind}: only a ServiceAccount has one")
    if owner.name.startswith(("system:", "tenantry:")):
        yield Problem(
            f"{path}.name",
            f"is {owner.name!r}; it must not begin with system: or tenantry:, which name users and groups of Kubernetes"
            " and of Tenantry",
        )


def _quantities(tenant: Tenant) -> Iterator[Problem]:
    hard, defaults = tenant.spec.quota.hard, tenant.spec.container_defaults
    yield from _keys("spec.quota.hard", hard)
    for side, given in (("requests", defaults.requests), ("limits", defaults.limits)):
        wrong = sorted(key for key in given if not _RESOURCE.fullmatch(key))
        if wrong:
            yield Problem(
                f"spec.containerDefaults.{side}",
                f"has {wrong[0]!r}; it must have only resources of containers, as in cpu, memory, ephemeral-storage or"
                " example.com/gpu",
            )
    for path, given in (
        ("spec.quota.hard", hard),
        ("spec.containerDefaults.requests", defaults.requests),
        ("spec.containerDefaults.limits", defaults.limits),
    ):
        yield from _map(path, given)


def _map(path: str, given: Mapping[str, int | str]) -> Iterator[Problem]:
    if len(given) > _MOST_KEYS:
        yield Problem(path, f"has {len(given)} keys; it may have at most {_MOST_KEYS}")
    for key, value in given.items():
        yield from _quantity(f"{path}[{key}]", value)


def _limits(tenant: Tenant) -> Iterator[Problem]:
    rules = tenant.spec.namespaces
    for field, value in (("maxCount", rules.max_count), ("maxDepth", rules.max_depth)):
        if value < 0:
            yield Problem(
                f"spec.namespaces.{field}",
                f"is {value}; it must not be negative (0 means the limit in TenancyDefaults)",
            )
    if not is_pattern(rules.name_pattern):
        yield Problem(
            "spec.namespaces.namePattern",
            f"is {rules.name_pattern[:64]!r}; it must be a regular expression in the syntax of RE2, as in team-[a-z]+",
        )


def _instant(path: str, value: str) -> Iterator[Problem]:
    """Check what the schema format date-time and CEL's timestamp check: RFC 3339, in capitals; empty for none."""
    if not value:
        return
    good = len(value) <= 64 and _INSTANT.fullmatch(value) is not None  # noqa: PLR2004 - maxLength of the model
    try:
        datetime.fromisoformat(value)
    except ValueError:
        good = False
    if not good:
        yield Problem(path, f"is {value[:64]!r}; it must be a time as in 2027-01-31T18:00:00Z")


# -- Subnamespaces --------------------------------------------------------------------------------


def _child_name(name: str) -> Iterator[Problem]:
    if not name:
        yield Problem("metadata.name", "must be given")
    elif not _LABEL.fullmatch(name) or len(name) > MAX_NAME:
        yield Problem(
            "metadata.name",
            f"is {name!r}; it must be a DNS label of at most {MAX_NAME} lower-case letters, digits and -, because the"
            " child namespace has this name with a hyphen and 16 digits behind it",
        )


def _exact_name(spec: SubnamespaceSpec) -> Iterator[Problem]:
    path = "spec.namespaceName"
    if spec.namespace_name and marks.is_reserved(spec.namespace_name):
        yield Problem(
            path, "must not be default nor begin with kube- or tenantry-, which are reserved; choose another name"
        )
    if spec.namespace_name and spec.adopt.namespace:
        yield Problem(path, "must not be set beside adopt, whose namespace keeps its name")


def _plane_name(value: Tenant | Subnamespace) -> Iterator[Problem]:
    is_virtual = value.spec.isolation.control_plane is ControlPlaneChoice.VIRTUAL
    if is_virtual and len(value.metadata.name) > MAX_PLANE_NAME:
        yield Problem("metadata.name", TOO_LONG)


def _claim_name(tenant: Tenant) -> Iterator[Problem]:
    has_claim = tenant.spec.isolation.nodes is NodesChoice.SLICE
    if has_claim and len(tenant.metadata.name) > MAX_CLAIM_NAME:
        yield Problem("metadata.name", CLAIM_NAME_TOO_LONG)
    has_cluster = tenant.spec.isolation.control_plane is ControlPlaneChoice.DEDICATED
    if has_cluster and len(tenant.metadata.name) > MAX_CLUSTER_NAME:
        yield Problem("metadata.name", CLUSTER_NAME_TOO_LONG)


def _plane_bindings(spec: SubnamespaceSpec) -> Iterator[Problem]:
    if spec.isolation.control_plane is ControlPlaneChoice.DEDICATED:
        yield Problem("spec.isolation.controlPlane", NOT_OF_A_CHILD)
    is_virtual = spec.isolation.control_plane is ControlPlaneChoice.VIRTUAL
    if is_virtual and spec.inheritance.role_bindings is not InheritanceMode.NONE:
        yield Problem(
            "spec.inheritance.roleBindings",
            "must be None if isolation.controlPlane is Virtual: inherited bindings would give rights on the host; name"
            " the owners in spec.owners",
        )


def _child_owners(spec: SubnamespaceSpec) -> Iterator[Problem]:
    path = "spec.owners"
    inherited = spec.mode is Mode.WORKSPACE and spec.inheritance.role_bindings is not InheritanceMode.NONE
    if not spec.owners and not inherited:
        yield Problem(
            path,
            "must have at least one owner, as in {kind: User, name: ada}, unless a Workspace inherits roleBindings",
        )
    if len(spec.owners) > _MOST_KEYS:
        yield Problem(path, f"has {len(spec.owners)} items; it may have at most {_MOST_KEYS}: use a Group")
    for index, owner in enumerate(spec.owners):
        yield from _owner(f"{path}[{index}]", owner)


def _inheritance(mode: Mode, given: Inheritance) -> Iterator[Problem]:
    path = "spec.inheritance"
    for index, other in enumerate(given.others):
        if _NEVER_INHERITED.fullmatch(other.resource):
            yield Problem(
                f"{path}.others[{index}].resource",
                f"is {other.resource!r}; it must not be a kind that controllers create, a Tenantry kind, or a"
                f" kind with a field of its own in {path}",
            )
    if len({other.resource for other in given.others}) < len(given.others):
        yield Problem(f"{path}.others", "must not name a resource twice")
    if mode is Mode.WORKSPACE:
        return
    none, sync = InheritanceMode.NONE, InheritanceMode.SYNC
    closed = (given.roles, given.role_bindings, given.network_policies, given.service_accounts)
    if any(each is not none for each in closed):
        yield Problem(
            path,
            "must not have roles, roleBindings, networkPolicies nor serviceAccounts in a Subtenant, which its parent"
            " does not see into; leave them at None",
        )
    others = (given.limit_ranges, given.secrets, given.config_maps, *(other.mode for other in given.others))
    if any(each is sync for each in others):
        yield Problem(
            path, "must not be Sync in a Subtenant, because its parent must not change its objects later; use Copy"
        )
    if any(other.mode is not none and _RUNS_PODS.fullmatch(other.resource) for other in given.others):
        yield Problem(
            f"{path}.others",
            "must not have kinds that run pods in a Subtenant, which would read its Secrets for its parent",
        )


def _marks(path: str, given: Mapping[str, str]) -> Iterator[Problem]:
    if len(given) > _MOST_KEYS:
        yield Problem(path, f"has {len(given)} keys; it may have at most {_MOST_KEYS}")
    for key, value in given.items():
        if len(value) > 4096:  # noqa: PLR2004 - maxLength of the model
            yield Problem(f"{path}[{key}]", "must be at most 4096 characters long")


def _adoption(spec: SubnamespaceSpec) -> Iterator[Problem]:
    for field, value in (("namespace", spec.adopt.namespace), ("parent", spec.adopt.parent)):
        if len(value) > _LABEL_LENGTH:
            yield Problem(f"spec.adopt.{field}", "must be at most 63 characters long")
    if spec.adopt.parent and not spec.adopt.namespace:
        yield Problem("spec.adopt.namespace", "must be given")


def _keys(path: str, hard: Mapping[str, int | str]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for key in hard:
        try:
            normal = quota.normal_key(key)
        except InputError as error:
            yield Problem(path, f"has a wrong key: {error}")
            continue
        if normal in seen:
            yield Problem(path, f"has both {seen[normal]!r} and {key!r}, which mean the same; keep one")
        seen[normal] = key


def _quantity(path: str, value: int | str) -> Iterator[Problem]:
    try:
        negative = quantity.parse(value) < 0
    except InputError as error:
        yield Problem(path, f"must be a quantity: {error}")
        return
    if negative:
        yield Problem(path, f"is {value!r}; it must not be negative")
