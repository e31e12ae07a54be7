"""Which rules are in force in a namespace: those of each level, merged from the top down so that none gets looser.

    Rules of a level ─► flatten ─► TenancyRulesSpec ─┐
    Rules of the next ─► flatten ─► …               ─┴► meet ─► …

Pure. Levels are expanded to switches as the Pod Security Standards have them (Kubernetes: "Pod Security Standards").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import TypeVar

import msgspec
from msgspec import UNSET

from tenantry.api.ruledeclarations import Action
from tenantry.api.rulefields import RuleField, fields
from tenantry.api.rules import (
    Permission,
    PodSecurity,
    PodSecurityLevel,
    RuleModel,
    Rules,
    Seccomp,
    Standard,
)
from tenantry.api.tenancyrules import LIMIT, RATIO, SECONDS, SIZE, TOKEN, Bound, Listed, Section, TenancyRulesSpec
from tenantry.world import quantity
from tenantry.world.addresses import is_within

LEVELS = tuple(PodSecurityLevel)
STANDARDS = tuple(Standard)
STANDARD_SOURCE = "Tenantry's standard"
"""The start of the text by which messages name a standard; its name and the level that chose it follow, if any did."""

STANDARD = "standard"
"""The path of the standard in force, if it is not Baseline."""

LEVEL = "podSecurity.level"
RUNTIME_CLASS = "isolation.runtime"
"""The path of the cluster's sandbox among what is chosen; no one writes it below `rules`."""

MISSING = "runtimeClasses.onMissingSandbox"
RUNTIME_CLASSES = "runtimeClasses.allowed"
DEFAULT_CLASS = "storageClasses.default"
KNOWN_ANNOTATIONS = "annotations.known"
CACHED, CREDENTIALS = "images.cached", "images.credentials"
REQUIRED = "containers.requiredLimits"
MAXIMA = {
    "containers.max": "",
    "containers.maxLimits": LIMIT,
    "containers.limitRatios": RATIO,
    "objects.maxSizes": SIZE,
    "tokens.maxSeconds": SECONDS,
}
"""Path to what stands before a resource in the keys of the maxima."""

SINGLE_MAXIMA = {"tokens.maxSeconds": TOKEN}
"""Path of a maximum that is one number instead of a map to its key after the prefix."""


T = TypeVar("T")


class Layer(msgspec.Struct, frozen=True):
    """The rules of one level, and the text by which messages name it, as in "Tenant 'acme'"."""

    source: str
    rules: Rules


def effective(administrators: Sequence[Layer], below: Sequence[Layer] = ()) -> TenancyRulesSpec:
    """Return what is in force in a namespace.

    Args:
        administrators: TenancyDefaults, then the Tenant.
        below: The Subnamespaces down to the namespace's own.

    Raises:
        InputError: A quantity does not parse.
    """
    # The last level that names a standard decides: the fields of levels above it loosen that standard no more.
    named = [place for place, layer in enumerate(administrators) if layer.rules.standard is not UNSET]
    top = administrators[named[-1] :] if named else administrators
    given = merged(flatten(layer) for layer in administrators)
    rules = merged([_standard(top), given, *(_with_standard(layer) for layer in below)])
    return _with_declared(rules, administrators)


def _with_declared(rules: TenancyRulesSpec, administrators: Sequence[Layer]) -> TenancyRulesSpec:
    """Return rules with what administrators alone declare, whatever the standard is.

    Their lists of known annotations add to each other, and each may declare that kubelets verify image credentials.
    """
    known: list[Listed] = []
    declared: dict[str, Bound] = {}
    for source, given in ((layer.source, layer.rules) for layer in administrators):
        if given.annotations is not UNSET and given.annotations.known is not UNSET:
            known.append(Listed(source=source, values=tuple(given.annotations.known)))
        if given.images is not UNSET and given.images.credentials is not UNSET:
            declared[CREDENTIALS] = Bound(source=source, value=given.images.credentials)

    def told(section: Section) -> Section:
        patterns = {path: lists for path, lists in section.patterns.items() if path != KNOWN_ANNOTATIONS}
        chosen = {path: bound for path, bound in section.chosen.items() if path != CREDENTIALS}
        # A section without other rules stays empty, and needs no object.
        patterns |= {KNOWN_ANNOTATIONS: tuple(known)} if known and "annotations.unknown" in section.refused else {}
        chosen |= declared if CACHED in section.refused else {}
        return msgspec.structs.replace(section, patterns=_sorted(patterns), chosen=_sorted(chosen))

    return TenancyRulesSpec(enforce=told(rules.enforce), warn=told(rules.warn), audit=told(rules.audit))


def standard_of(administrators: Sequence[Rules], below: Sequence[Rules] = ()) -> Standard:
    """Return the standard in force in a namespace.

    Args:
        administrators: The rules of TenancyDefaults, then of the Tenant.
        below: Those of the Subnamespaces down to the namespace's own.
    """
    named = [each.standard for each in administrators if each.standard is not UNSET]
    top = named[-1] if named else Standard.BASELINE
    return Standard.RESTRICTED if any(each.standard is Standard.RESTRICTED for each in below) else top


def _with_standard(layer: Layer) -> TenancyRulesSpec:
    """Return the rules of a Subnamespace, and those of the standard that it names."""
    own = flatten(layer)
    return own if layer.rules.standard is UNSET else meet(_standard([layer]), own)


def _standard(administrators: Sequence[Layer]) -> TenancyRulesSpec:
    """Return the standard that the first level names (decision 8), less the rules that these levels set.

    Each field is replaced by itself: an administrator who allows load balancers has not decided on external addresses.
    Only a level of podSecurity replaces every control.
    """
    standard, source = Standard.BASELINE, STANDARD_SOURCE
    if administrators and administrators[0].rules.standard is not UNSET:
        standard = administrators[0].rules.standard
        source = f"{STANDARD_SOURCE} {standard} in {administrators[0].source}"
    whole = _whole_standard(standard, source)
    enforced = _without(whole.enforce, _set(administrators, Action.ENFORCE))
    if standard is not Standard.BASELINE:
        chosen = {**enforced.chosen, STANDARD: Bound(source=source, value=standard)}
        enforced = msgspec.structs.replace(enforced, chosen=chosen)
    # A warning is also replaced by the same field that refuses: both would say the same about different values.
    warned = _without(whole.warn, _set(administrators, Action.ENFORCE, Action.WARN))
    return TenancyRulesSpec(enforce=enforced, warn=warned)


def _set(administrators: Sequence[Layer], *actions: Action) -> set[str]:
    """Return the paths of the rules that these levels set with one of these actions."""
    decided = {
        path
        for layer in administrators
        for family, rule in _given(layer.rules)
        if rule.action in actions
        for name, key in zip(rule.__struct_fields__, rule.__struct_encode_fields__, strict=True)
        if name != "action" and getattr(rule, name) is not UNSET
        for path in _paths(f"{_camel(family)}.{key}")
    }
    if LEVEL in decided:
        decided |= {path for each in _declared().values() if each.levels for path in _paths(each.path)}
    return decided


def _without(section: Section, decided: Collection[str]) -> Section:
    """Return the rules of a standard that are not decided."""

    def left(values: Mapping[str, T]) -> dict[str, T]:
        return {k: v for k, v in values.items() if k not in decided}

    return Section(
        refused=left(section.refused),
        allowed=left(section.allowed),
        patterns=left(section.patterns),
        maxima={key: bound for key, bound in section.maxima.items() if _path_of(key) not in decided},
        required=section.required if REQUIRED not in decided else {},
        chosen=left(section.chosen),
    )


def _path_of(maximum: str) -> str:
    """Return the path of the rule with a key of the maxima."""
    before, colon, _ = maximum.rpartition(":")
    return next(path for path, prefix in MAXIMA.items() if prefix == before + colon)


@cache
def _declared() -> dict[str, RuleField]:
    """Return the rules as the API declares them, by path."""
    return {each.path: each for each in fields()}


@lru_cache(maxsize=64)
def _whole_standard(standard: Standard, source: str) -> TenancyRulesSpec:
    """Return what holds while no administrator sets any rule."""
    enforced = {each.path: each.standards[standard] for each in _declared().values() if standard in each.standards}
    is_mild = standard is Standard.BASELINE
    warned = {each.path: each.warned for each in _declared().values() if is_mild and each.warned is not None}
    return meet(_of_paths(enforced, Action.ENFORCE, source), _of_paths(warned, Action.WARN, source))


def _of_paths(values: Mapping[str, object], action: Action, source: str) -> TenancyRulesSpec:
    """Return rules from their paths and values."""
    families: dict[str, dict[str, object]] = {}
    for path, value in values.items():
        family, _, field = path.partition(".")
        families.setdefault(family, {"action": action})[field] = value
    return flatten(Layer(source, msgspec.convert(families, Rules)))


def _paths(path: str) -> tuple[str, ...]:
    """Return the paths that a field has in a section."""
    return ("podSecurity.seccompUnconfined", "podSecurity.seccompUnset") if path == "podSecurity.seccomp" else (path,)


def merged(specs: Iterable[TenancyRulesSpec]) -> TenancyRulesSpec:
    """Return the rules that hold if all of these do, in order from the top down."""
    whole = TenancyRulesSpec()
    for spec in specs:
        whole = meet(whole, spec)
    return whole


# -- one level ------------------------------------------------------------------------------------


def _given(rules: Rules) -> Iterator[tuple[str, RuleModel]]:
    for field in rules.__struct_fields__:
        value = getattr(rules, field)
        if isinstance(value, RuleModel):
            yield field, value


def flatten(layer: Layer) -> TenancyRulesSpec:
    """Return the rules of one level as policies read them.

    Raises:
        InputError: A quantity does not parse.
    """
    sections = {action: Section() for action in Action}
    for field, rule in _given(layer.rules):
        sections[rule.action] = meet_sections(sections[rule.action], _flat(field, rule, layer.source))
    return TenancyRulesSpec(enforce=sections[Action.ENFORCE], warn=sections[Action.WARN], audit=sections[Action.AUDIT])


def _flat(family: str, rule: RuleModel, source: str) -> Section:
    """Return one family: its fields by what they are, a permission, a list, patterns or quantities."""
    prefix = _camel(family)
    out = Section(refused={}, allowed={}, patterns={}, maxima={}, required={}, chosen={})
    if isinstance(rule, PodSecurity):
        rule = _with_level(rule)
    for name, key in zip(rule.__struct_fields__, rule.__struct_encode_fields__, strict=True):
        value = getattr(rule, name)
        path = f"{prefix}.{key}"
        if value is UNSET or name == "action":
            continue
        if path == REQUIRED:
            out.required.update(dict.fromkeys(value, source))
        elif path in MAXIMA:
            out.maxima.update({key: Bound(source=source, value=most) for key, most in bounds_of(path, value).items()})
        elif isinstance(value, Seccomp):
            unconfined, unset = _paths(path)
            out.refused.update({unconfined: source} if value is not Seccomp.ANY else {})
            out.refused.update({unset: source} if value is Seccomp.REQUIRED else {})
        elif isinstance(value, Permission):
            out.refused.update({path: source} if value is Permission.REFUSE else {})
        elif isinstance(value, str):
            out.chosen[path] = Bound(source=source, value=value)
        elif _declared()[path].has_patterns:
            out.patterns[path] = (Listed(source=source, values=tuple(value)),)
        else:
            out.allowed[path] = Listed(source=source, values=tuple(str(each) for each in value))
    return out


def bounds_of(path: str, value: Mapping[str, str | int] | int) -> dict[str, str]:
    """Return the maxima that the value of a rule sets: key to canonical quantity, or to whole seconds without a suffix.

    Raises:
        InputError: A quantity does not parse.
    """
    if isinstance(value, int):
        return {MAXIMA[path] + SINGLE_MAXIMA[path]: str(value)}
    return {MAXIMA[path] + key: quantity.canonical(amount) for key, amount in value.items()}


def _with_level(rule: PodSecurity) -> PodSecurity:
    """Return a level as switches; a switch that is given overrides its level."""
    level = rule.level if rule.level is not UNSET else PodSecurityLevel.PRIVILEGED
    changes: dict[str, object] = {}
    for each in _declared().values():
        if each.family == "pod_security" and getattr(rule, each.name) is UNSET:
            below = [value for known, value in each.levels.items() if LEVELS.index(known) <= LEVELS.index(level)]
            changes |= {each.name: below[-1]} if below else {}
    return msgspec.structs.replace(rule, **changes)


def _camel(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(word.title() for word in rest)


# -- merging --------------------------------------------------------------------------------------


def meet(above: TenancyRulesSpec, below: TenancyRulesSpec) -> TenancyRulesSpec:
    """Return the rules that hold if both do: never looser than either, each section by itself."""
    return TenancyRulesSpec(
        enforce=meet_sections(above.enforce, below.enforce),
        warn=meet_sections(above.warn, below.warn),
        audit=meet_sections(above.audit, below.audit),
    )


def meet_sections(above: Section, below: Section) -> Section:
    """Return the rules that hold if both do; if both are equal, the source is the level above."""
    maxima, chosen = dict(below.maxima), dict(above.chosen)
    for key, bound in above.maxima.items():
        other = maxima.get(key)
        if other is None or quantity.parse(bound.value) <= quantity.parse(other.value):
            maxima[key] = bound
    for key, bound in below.chosen.items():
        other = chosen.get(key)
        # A default class only has to be an allowed one. Two domains have no host in common: the upper one stays.
        if other is None or key == DEFAULT_CLASS or (key in _ORDERS and _rank(key, bound) > _rank(key, other)):
            chosen[key] = bound
    return Section(
        refused=_sorted({**below.refused, **above.refused}),
        allowed=_sorted(_joined(above.allowed, below.allowed)),
        patterns=_sorted(_conjoined(above.patterns, below.patterns)),
        maxima=_sorted(maxima),
        required=_sorted({**below.required, **above.required}),
        chosen=_sorted(chosen),
    )


_ORDERS: Mapping[str, Sequence[str]] = {LEVEL: LEVELS, STANDARD: STANDARDS}
"""Path to its values, from the loosest to the tightest."""


def _rank(path: str, bound: Bound) -> int:
    return _ORDERS[path].index(bound.value)


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
    """Return whether a list allows a value: KEY allows every KEY=VALUE, a CIDR every CIDR in it."""
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
