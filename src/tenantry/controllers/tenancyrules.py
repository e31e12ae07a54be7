"""The TenancyRules of a namespace, merged from all levels, and the labels from which policies find them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.model import KubernetesObject, ObjectMeta
from tenantry.api.policyparameters import MOST_BYTES, PolicyParameters, parameters, size, texts_of
from tenantry.api.rules import PullPolicy, Rules
from tenantry.api.runtime import RuntimeChoice
from tenantry.api.slice import LIMITS_MAP, MAX_GRACE, MIN_GRACE
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import SliceDefaults, TenancyDefaults
from tenantry.api.tenancyrules import (
    EXISTING_VOLUMES_MARK,
    MAPS,
    NAME,
    OWN_MARK,
    PULL_MARK,
    RECLAIMED,
    Bound,
    Section,
    TenancyRules,
    TenancyRulesSpec,
    action_mark,
    reclaim_mark,
)
from tenantry.api.tenant import Tenant
from tenantry.controllers import tenantnamespace
from tenantry.controllers.tenantnamespace import TenantNamespace
from tenantry.engine.plan import Child
from tenantry.policy import text
from tenantry.policy.catalog import TARGETS, decides
from tenantry.policy.compile import ENFORCED, SECTIONS
from tenantry.policy.rules.storageclasses import EXISTING_VOLUMES, RECLAIM_POLICIES
from tenantry.world import sandbox as sandboxed
from tenantry.world.rules import CACHED, MISSING, RUNTIME_CLASS, Layer, effective
from tenantry.world.sandbox import NO_SANDBOX, Sandbox

DEFAULTS_SOURCE = "TenancyDefaults 'default'"
NO_RULES = Rules()


def rules_of_all(defaults: TenancyDefaults | None) -> Rules:
    """Return the rules that hold for all tenants."""
    return defaults.spec.rules if defaults is not None else NO_RULES


def rules_of(
    defaults: Rules, tenant: Tenant, lineage: Sequence[Subnamespace] = (), sandbox: Sandbox = NO_SANDBOX
) -> TenancyRulesSpec:
    """Return the rules in force in a namespace.

    Args:
        defaults: The rules of TenancyDefaults.
        tenant: The tenant of the namespace.
        lineage: The Subnamespaces from the top of the tree down to the namespace's own; none for a core namespace.
        sandbox: The cluster's sandbox.

    Raises:
        InputError: A quantity in them is wrong in a way that the CRD's schema did not catch.
    """
    above = [Layer(DEFAULTS_SOURCE, defaults), Layer(f"Tenant {tenant.metadata.name!r}", tenant.spec.rules)]
    rules = effective(above, [Layer(f"Subnamespace {each.key!r}", each.spec.rules) for each in lineage])
    is_marked = sandboxed.mark(_given(tenant.spec.isolation.runtime), _below(lineage), sandbox)
    return _with_sandbox(rules, sandbox, _sandboxer(tenant, lineage)) if is_marked else rules


def has_own(tenant: Tenant, lineage: Sequence[Subnamespace] = ()) -> bool:
    """Return whether a namespace has rules of its own, besides those of all tenants.

    Args:
        tenant: The tenant of the namespace.
        lineage: As in `rules_of`.
    """
    # A Subnamespace that sets Sandboxed itself is named as the source of that rule, so it cannot share an object.
    return tenant.spec.rules != NO_RULES or any(
        each.spec.rules != NO_RULES or each.spec.isolation.runtime is RuntimeChoice.SANDBOXED for each in lineage
    )


class RenderedRules(msgspec.Struct, frozen=True):
    """The objects and labels of a namespace's rules.

    Args:
        labels: The labels from which policies find the rules, and by which those that warn and audit select it.
        children: The rules; none if the namespace shares those of all.
    """

    labels: dict[str, str]
    children: tuple[Child, ...]


def render(
    namespace: TenantNamespace, defaults: Rules, lineage: Sequence[Subnamespace] = (), sandbox: Sandbox = NO_SANDBOX
) -> RenderedRules:
    """Return the objects and labels of a namespace's rules.

    Args:
        namespace: The namespace.
        defaults: The cluster's rules.
        lineage: As in `rules_of`.
        sandbox: The cluster's sandbox.

    Raises:
        InputError: As `rules_of`.
    """
    rules = rules_of(defaults, namespace.tenant, lineage, sandbox)
    runtime = sandboxed.mark(_given(namespace.tenant.spec.isolation.runtime), _below(lineage), sandbox)
    labels = _action_labels(rules)
    labels |= {marks.RUNTIME: runtime} if runtime else {}
    labels |= _reclaim_labels(rules)
    labels |= {PULL_MARK: PullPolicy.ALWAYS.value} if CACHED in rules.enforce.refused else {}
    labels |= {} if EXISTING_VOLUMES in rules.enforce.refused else {EXISTING_VOLUMES_MARK: "Allow"}
    if not has_own(namespace.tenant, lineage):
        return RenderedRules(labels, ())
    return RenderedRules({**labels, OWN_MARK: "own"}, _children(rules, tenantnamespace.meta(namespace, NAME)))


def _children(rules: TenancyRulesSpec, meta: ObjectMeta) -> tuple[Child, ...]:
    return tuple(
        Child(object=each, wave=tenantnamespace.WAVE_LIMITS, with_namespace=True) for each in objects(rules, meta)
    )


def objects(rules: TenancyRulesSpec, meta: ObjectMeta) -> list[KubernetesObject]:
    """Return rules in the form for people and in the form for policies; warn and audit only if they have rules.

    Args:
        rules: The rules in force.
        meta: The metadata of the TenancyRules.
    """
    found: list[KubernetesObject] = [TenancyRules(metadata=meta, spec=rules)]
    for section, name in MAPS.items():
        forms = text.encoded(getattr(rules, section))
        if forms or section == ENFORCED:
            found.append(_fitting(parameters(name, meta.namespace, section, forms)))
    return found


def _fitting(wanted: PolicyParameters) -> PolicyParameters:
    """Return the rules of a section, if the API server can store them.

    Raises:
        InputError: They are too long.
    """
    length = size(texts_of(wanted.metadata.annotations))
    if length > MOST_BYTES:
        raise InputError(
            f"spec.rules must not be longer than {MOST_BYTES} bytes, merged with the rules of the levels above: the"
            f" section {wanted.metadata.labels[OWN_MARK]} has {length}; use shorter lists, or patterns instead of lists"
        )
    return wanted


def _action_labels(rules: TenancyRulesSpec) -> dict[str, str]:
    """Return the labels that select the policies that warn and audit."""
    labels: dict[str, str] = {}
    for section in SECTIONS:
        found: Section = getattr(rules, section)
        if section != ENFORCED and not found.is_empty:
            targets = ["", *(each.name for each in TARGETS if each.is_rarely_reported and decides(each, found))]
            labels |= {action_mark(section, target): "true" for target in targets}
    return labels


def _reclaim_labels(rules: TenancyRulesSpec) -> dict[str, str]:
    """Return the labels that list the allowed reclaim policies of volumes, if these are not the usual ones."""
    labels: dict[str, str] = {}
    for section in SECTIONS:
        listed = getattr(rules, section).allowed.get(RECLAIM_POLICIES)
        if listed is not None and (section != ENFORCED or listed.values != (RECLAIMED,)):
            labels[reclaim_mark(section)] = ".".join(sorted(listed.values))
    return labels


def shared(defaults: Rules, sandbox: Sandbox = NO_SANDBOX) -> tuple[Child, ...]:
    """Return the rules of all namespaces that have none of their own.

    Args:
        defaults: The rules of TenancyDefaults.
        sandbox: The cluster's sandbox; a label of each namespace selects the pods that must run in it.

    Raises:
        InputError: As `rules_of`.
    """
    meta = ObjectMeta(name=NAME, namespace=marks.SYSTEM_NAMESPACE, labels={marks.MANAGED_BY: marks.MANAGER})
    return _children(_with_sandbox(effective([Layer(DEFAULTS_SOURCE, defaults)]), sandbox, "the Tenant"), meta)


def invalid(defaults: Rules) -> str:
    """Return why the rules of TenancyDefaults cannot come into force; "" if they can."""
    try:
        shared(defaults)
    except InputError as error:
        return str(error)
    return ""


def of_slices(defaults: SliceDefaults) -> Child:
    """Return the limits of slice claims as policies read them."""
    most = defaults.max_grace_period_seconds
    texts = {MAX_GRACE: str(most), MIN_GRACE: str(min(defaults.min_grace_period_seconds, most))}
    wanted = parameters(LIMITS_MAP, marks.SYSTEM_NAMESPACE, "slices", texts)
    return Child(object=wanted, wave=tenantnamespace.WAVE_LIMITS)


def refuser(defaults: Rules, tenant: Tenant, lineage: Sequence[Subnamespace] = ()) -> str:
    """Return the level whose rule refuses pods if there is no sandbox; "" if they may run.

    Args:
        defaults: The rules of TenancyDefaults.
        tenant: The tenant of the namespace.
        lineage: As in `rules_of`.
    """
    asks = lineage[-1].spec.isolation.runtime if lineage else tenant.spec.isolation.runtime
    if asks is not RuntimeChoice.SANDBOXED:
        return ""  # only an explicit Sandboxed is reported
    try:
        return rules_of(defaults, tenant, lineage).enforce.refused.get(MISSING, "")
    except InputError:
        return ""  # the condition Ready reports the error


# -- the sandbox ----------------------------------------------------------------------------------


def _with_sandbox(rules: TenancyRulesSpec, sandbox: Sandbox, source: str) -> TenancyRulesSpec:
    """Return rules with the sandbox's name among them."""
    if not sandbox.name:
        return rules
    chosen = {RUNTIME_CLASS: Bound(source=source, value=sandbox.name)}

    def told(section: Section) -> Section:
        return msgspec.structs.replace(section, chosen=dict(sorted({**section.chosen, **chosen}.items())))

    # The sections that warn and audit need it as well; an empty section stays empty, and needs no object.
    return TenancyRulesSpec(
        enforce=told(rules.enforce),
        warn=rules.warn if rules.warn.is_empty else told(rules.warn),
        audit=rules.audit if rules.audit.is_empty else told(rules.audit),
    )


def _sandboxer(tenant: Tenant, lineage: Sequence[Subnamespace]) -> str:
    """Return the level that requests the sandbox: the Tenant, or the first Subnamespace below."""
    below = next((each for each in lineage if each.spec.isolation.runtime is RuntimeChoice.SANDBOXED), None)
    if below is None or tenant.spec.isolation.runtime is RuntimeChoice.SANDBOXED:
        return f"Tenant {tenant.metadata.name!r}"
    return f"Subnamespace {below.key!r}"


def _below(lineage: Sequence[Subnamespace]) -> list[RuntimeChoice | None]:
    return [_given(each.spec.isolation.runtime) for each in lineage]


def _given(runtime: RuntimeChoice | UnsetType) -> RuntimeChoice | None:
    return None if runtime is UNSET else runtime
