"""Which rules are in force in a namespace: what each level says, merged from the top down so that nothing gets looser.

    Rules of a level ─► flatten ─► TenancyRulesSpec ─┐
    Rules of the next ─► flatten ─► …               ─┴► meet ─► …

Pure. Levels are expanded to switches as the Pod Security Standards have them (Kubernetes: "Pod Security Standards").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from tenantry.api.rules import (
    Action,
    Hostnames,
    Level,
    Permission,
    PodSecurity,
    PriorityClasses,
    ReclaimPolicy,
    RuleModel,
    Rules,
    RuntimeClasses,
    Scheduling,
    Seccomp,
    Services,
    ServiceType,
    StorageClasses,
)
from tenantry.api.tenancyrules import Bound, Listed, Section, TenancyRulesSpec
from tenantry.world import quantity
from tenantry.world.addresses import is_within

LEVELS = (Level.PRIVILEGED, Level.BASELINE, Level.RESTRICTED)

STANDARD = Rules(
    pod_security=PodSecurity(level=Level.BASELINE),
    runtime_classes=RuntimeClasses(on_missing_sandbox=Permission.REFUSE),
    priority_classes=PriorityClasses(system=Permission.REFUSE),
    scheduling=Scheduling(node_name=Permission.REFUSE, other_tenants=Permission.REFUSE),
    services=Services(
        types=(ServiceType.CLUSTER_IP,),
        external_ips=Permission.REFUSE,
        external_name=Permission.REFUSE,
        endpoints=Permission.REFUSE,
    ),
    storage_classes=StorageClasses(reclaim_policies=(ReclaimPolicy.DELETE,), existing_volumes=Permission.REFUSE),
    hostnames=Hostnames(catch_all=Permission.REFUSE),
)
"""What holds for whatever of it neither TenancyDefaults nor the Tenant decides (decision 8)."""

STANDARD_SOURCE = "Tenantry's standard"

BASELINE_REFUSES = (
    "privileged",
    "hostNamespaces",
    "hostPath",
    "hostPorts",
    "hostProbes",
    "hostProcess",
    "procMount",
    "seLinux",
    "appArmor",
    "seccompUnconfined",
)
RESTRICTED_REFUSES = ("privilegeEscalation", "runAsRoot", "defaultCapabilities", "seccompUnset")
BASELINE_CAPABILITIES = (
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
)
RESTRICTED_CAPABILITIES = ("NET_BIND_SERVICE",)
SAFE_SYSCTLS = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
)
RESTRICTED_VOLUMES = (
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
)

LEVEL = "podSecurity.level"
RUNTIME_CLASS = "isolation.runtime"
"""Where the name of the cluster's sandbox stands among what is chosen: nobody gives it below `rules`."""

MISSING = "runtimeClasses.onMissingSandbox"
RUNTIME_CLASSES = "runtimeClasses.allowed"
DEFAULT_CLASS = "storageClasses.default"
PATTERNS = ("images.allowed", "hostnames.allowed", "namespaces.labels", "namespaces.annotations")
"""The rules whose values are regular expressions."""

PAIRED = "scheduling.nodeSelectors"
"""The rule whose values are KEY=VALUE, or KEY for any value of it."""


T = TypeVar("T")


class Layer(msgspec.Struct, frozen=True):
    """The rules of one level, and how people are told of it, as in "Tenant 'acme'"."""

    source: str
    rules: Rules


def effective(administrators: Sequence[Layer], below: Sequence[Layer] = ()) -> TenancyRulesSpec:
    """Return what is in force in a namespace.

    Args:
        administrators: TenancyDefaults, then the Tenant.
        below: The Subnamespaces down to the namespace's own.

    Raises:
        InputError: A quantity is none.
    """
    given = merged(flatten(layer) for layer in administrators)
    return merged([_standard(administrators), given, *(flatten(layer) for layer in below)])


def _standard(administrators: Sequence[Layer]) -> TenancyRulesSpec:
    """Return what of the standard no administrator decides.

    Who allows load balancers says nothing about external addresses, and who refuses one thing allows no other: each
    field stands for itself. Only a level of podSecurity decides all of it.
    """
    decided = {
        path
        for layer in administrators
        for name, rule in _given(layer.rules)
        if rule.action is Action.ENFORCE
        for field, key in zip(rule.__struct_fields__, rule.__struct_encode_fields__, strict=True)
        if field != "action" and getattr(rule, field) is not UNSET
        for path in _paths(f"{_camel(name)}.{key}")
    }

    def left(values: Mapping[str, T]) -> dict[str, T]:
        whole = LEVEL in decided
        return {k: v for k, v in values.items() if k not in decided and not (whole and k.startswith("podSecurity."))}

    section = flatten(Layer(STANDARD_SOURCE, STANDARD)).enforce
    kept = Section(refused=left(section.refused), allowed=left(section.allowed), chosen=left(section.chosen))
    return TenancyRulesSpec(enforce=kept)


def _paths(path: str) -> tuple[str, ...]:
    """Return what a field becomes in a section."""
    return ("podSecurity.seccompUnconfined", "podSecurity.seccompUnset") if path == "podSecurity.seccomp" else (path,)


def merged(specs: Iterable[TenancyRulesSpec]) -> TenancyRulesSpec:
    """Return what holds where all of them do; the order is from the top down."""
    whole = TenancyRulesSpec()
    for spec in specs:
        whole = meet(whole, spec)
    return whole


# -- what one level says --------------------------------------------------------------------------


def _given(rules: Rules) -> Iterator[tuple[str, RuleModel]]:
    for field in rules.__struct_fields__:
        value: RuleModel | UnsetType = getattr(rules, field)
        if value is not UNSET:
            yield field, value


def flatten(layer: Layer) -> TenancyRulesSpec:
    """Return the rules of one level as policies read them.

    Raises:
        InputError: A quantity is none.
    """
    sections = {action: Section() for action in Action}
    for field, rule in _given(layer.rules):
        sections[rule.action] = meet_sections(sections[rule.action], _flat(field, rule, layer.source))
    return TenancyRulesSpec(enforce=sections[Action.ENFORCE], warn=sections[Action.WARN], audit=sections[Action.AUDIT])


def _flat(name: str, rule: RuleModel, source: str) -> Section:
    """Return one rule: its fields by what they are, a permission, a list, patterns or quantities."""
    prefix = _camel(name)
    out = Section(refused={}, allowed={}, patterns={}, maxima={}, required={}, chosen={})
    if isinstance(rule, PodSecurity):
        return _pod_security(rule, source)
    for field, key in zip(rule.__struct_fields__, rule.__struct_encode_fields__, strict=True):
        value = getattr(rule, field)
        path = f"{prefix}.{key}"
        if value is UNSET or field == "action":
            continue
        if field == "required_limits":
            out.required.update(dict.fromkeys(value, source))
        elif field == "max":
            out.maxima.update({k: Bound(source=source, value=quantity.canonical(v)) for k, v in value.items()})
        elif isinstance(value, Permission):
            out.refused.update({path: source} if value is Permission.REFUSE else {})
        elif isinstance(value, str):
            out.chosen[path] = Bound(source=source, value=value)
        elif path in PATTERNS:
            out.patterns[path] = (Listed(source=source, values=tuple(value)),)
        else:
            out.allowed[path] = Listed(source=source, values=tuple(str(each) for each in value))
    return out


def _pod_security(rule: PodSecurity, source: str) -> Section:
    """Return a level as switches; a switch that is given overrides what the level says."""
    level = rule.level if rule.level is not UNSET else Level.PRIVILEGED
    refused: set[str] = set()
    allowed: dict[str, tuple[str, ...]] = {}
    if level is not Level.PRIVILEGED:
        refused.update(BASELINE_REFUSES)
        allowed.update(capabilities=BASELINE_CAPABILITIES, sysctls=SAFE_SYSCTLS)
    if level is Level.RESTRICTED:
        refused.update(RESTRICTED_REFUSES)
        allowed.update(capabilities=RESTRICTED_CAPABILITIES, volumeTypes=RESTRICTED_VOLUMES)
    for field, key in zip(rule.__struct_fields__, rule.__struct_encode_fields__, strict=True):
        value = getattr(rule, field)
        if isinstance(value, Permission):
            (refused.add if value is Permission.REFUSE else refused.discard)(key)
        elif isinstance(value, tuple):
            allowed[key] = value
    if rule.seccomp is not UNSET:
        refused -= {"seccompUnconfined", "seccompUnset"}
        refused |= {"seccompUnconfined"} if rule.seccomp is not Seccomp.ANY else set()
        refused |= {"seccompUnset"} if rule.seccomp is Seccomp.REQUIRED else set()
    return Section(
        refused={f"podSecurity.{key}": source for key in sorted(refused)},
        allowed={f"podSecurity.{key}": Listed(source=source, values=allowed[key]) for key in sorted(allowed)},
        chosen={LEVEL: Bound(source=source, value=rule.level)} if rule.level is not UNSET else {},
    )


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.title() for word in rest)


# -- merging --------------------------------------------------------------------------------------


def meet(above: TenancyRulesSpec, below: TenancyRulesSpec) -> TenancyRulesSpec:
    """Return what holds where both do: never looser than either, each section by itself."""
    return TenancyRulesSpec(
        enforce=meet_sections(above.enforce, below.enforce),
        warn=meet_sections(above.warn, below.warn),
        audit=meet_sections(above.audit, below.audit),
    )


def meet_sections(above: Section, below: Section) -> Section:
    """Return what holds where both do; who is above is named where both say the same."""
    maxima, chosen = dict(below.maxima), dict(above.chosen)
    for key, bound in above.maxima.items():
        other = maxima.get(key)
        if other is None or quantity.parse(bound.value) <= quantity.parse(other.value):
            maxima[key] = bound
    for key, bound in below.chosen.items():
        other = chosen.get(key)
        # A default class only has to be one of those that are allowed. Two domains have no host in common.
        if other is None or key == DEFAULT_CLASS or (key == LEVEL and _rank(bound) > _rank(other)):
            chosen[key] = bound
    return Section(
        refused=_sorted({**below.refused, **above.refused}),
        allowed=_sorted(_joined(above.allowed, below.allowed)),
        patterns=_sorted(_conjoined(above.patterns, below.patterns)),
        maxima=_sorted(maxima),
        required=_sorted({**below.required, **above.required}),
        chosen=_sorted(chosen),
    )


def _rank(bound: Bound) -> int:
    return LEVELS.index(Level(bound.value))


def _sorted(values: Mapping[str, T]) -> dict[str, T]:
    return dict(sorted(values.items()))


def _joined(above: Mapping[str, Listed], below: Mapping[str, Listed]) -> dict[str, Listed]:
    out = {**below, **above}
    for key in above.keys() & below.keys():
        one, other = above[key], below[key]
        both = common(one.values, other.values)
        out[key] = one if set(both) == set(one.values) else Listed(source=other.source, values=both)
    return out


def common(above: Sequence[str], below: Sequence[str]) -> tuple[str, ...]:
    """Return the values that both lists allow; see `covers`."""
    kept = [value for value in below if covers(above, value)]
    kept += [value for value in above if covers(below, value)]
    return tuple(dict.fromkeys(kept))


def covers(values: Sequence[str], value: str) -> bool:
    """Tell whether a list allows a value: KEY every KEY=VALUE, a CIDR every one in it."""
    key, has_value, _ = value.partition("=")
    is_inside = "/" in value and any(is_within(value, each) for each in values)
    return value in values or (bool(has_value) and key in values) or is_inside


def _conjoined(
    above: Mapping[str, tuple[Listed, ...]], below: Mapping[str, tuple[Listed, ...]]
) -> dict[str, tuple[Listed, ...]]:
    out = {**above}
    for key, lists in below.items():
        known = out.get(key, ())
        said = {frozenset(each.values) for each in known}
        out[key] = (*known, *(each for each in lists if frozenset(each.values) not in said))
    return out
