"""The TenancyRules of a namespace, and the marks that go with them: of which levels they are merged. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from tenantry.api import marks
from tenantry.api.errors import InputError
from tenantry.api.model import KubernetesObject, ObjectMeta
from tenantry.api.rules import Rules
from tenantry.api.runtime import RuntimeChoice
from tenantry.api.slice import LIMITS_MAP, MAX_GRACE
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenancydefaults import SliceDefaults
from tenantry.api.tenancyrules import (
    AUDIT_MARK,
    EXISTING_VOLUMES_MARK,
    MAPS,
    NAME,
    OWN_MARK,
    RECLAIMED,
    WARN_MARK,
    Bound,
    RulesMap,
    Section,
    TenancyRules,
    TenancyRulesSpec,
    reclaim_mark,
)
from tenantry.api.tenant import Tenant
from tenantry.controllers import tenantnamespace
from tenantry.controllers.tenantnamespace import TenantNamespace
from tenantry.engine.plan import Child
from tenantry.policy import text
from tenantry.policy.compile import ENFORCED, SECTIONS
from tenantry.policy.rules.storageclasses import EXISTING_VOLUMES, RECLAIM_POLICIES
from tenantry.world import sandbox as sandboxed
from tenantry.world.rules import MISSING, RUNTIME_CLASS, Layer, effective
from tenantry.world.sandbox import NO_SANDBOX, Sandbox

DEFAULTS_SOURCE = "TenancyDefaults 'default'"
NO_RULES = Rules()


def rules_of(
    defaults: Rules, tenant: Tenant, lineage: Sequence[Subnamespace] = (), sandbox: Sandbox = NO_SANDBOX
) -> TenancyRulesSpec:
    """Return what is in force in a namespace.

    Args:
        defaults: The cluster's.
        tenant: Whose namespace it is.
        lineage: The Subnamespaces from the top of the tree down to the namespace's own; none for a core namespace.
        sandbox: What the cluster has.

    Raises:
        InputError: A quantity in them is wrong in a way that the CRD's schema did not catch.
    """
    above = [Layer(DEFAULTS_SOURCE, defaults), Layer(f"Tenant {tenant.metadata.name!r}", tenant.spec.rules)]
    rules = effective(above, [Layer(f"Subnamespace {each.key!r}", each.spec.rules) for each in lineage])
    is_marked = sandboxed.mark(_given(tenant.spec.isolation.runtime), _below(lineage), sandbox)
    return _with_sandbox(rules, sandbox, _sandboxer(tenant, lineage)) if is_marked else rules


def has_own(tenant: Tenant, lineage: Sequence[Subnamespace] = ()) -> bool:
    """Tell whether a namespace has rules of its own, beside what holds for all tenants.

    Args:
        tenant: Whose namespace it is.
        lineage: As in `rules_of`.
    """
    # One below that is sandboxed by itself tells so in words of its own.
    return tenant.spec.rules != NO_RULES or any(
        each.spec.rules != NO_RULES or each.spec.isolation.runtime is RuntimeChoice.SANDBOXED for each in lineage
    )


class RenderedRules(msgspec.Struct, frozen=True):
    """What a namespace has for its rules.

    Args:
        labels: Its labels, by which policies find the rules, and by which those that warn and note are about it.
        children: Its rules; none where it shares those of all.
    """

    labels: dict[str, str]
    children: tuple[Child, ...]


def render(
    namespace: TenantNamespace, defaults: Rules, lineage: Sequence[Subnamespace] = (), sandbox: Sandbox = NO_SANDBOX
) -> RenderedRules:
    """Return what a namespace has for its rules.

    Args:
        namespace: The namespace.
        defaults: The cluster's rules.
        lineage: As in `rules_of`.
        sandbox: What the cluster has.

    Raises:
        InputError: As `rules_of`.
    """
    rules = rules_of(defaults, namespace.tenant, lineage, sandbox)
    runtime = sandboxed.mark(_given(namespace.tenant.spec.isolation.runtime), _below(lineage), sandbox)
    labels = {} if rules.warn.is_empty else {WARN_MARK: "true"}
    labels |= {} if rules.audit.is_empty else {AUDIT_MARK: "true"}
    labels |= {marks.RUNTIME: runtime} if runtime else {}
    labels |= _reclaim_labels(rules)
    labels |= {} if EXISTING_VOLUMES in rules.enforce.refused else {EXISTING_VOLUMES_MARK: "Allow"}
    if not has_own(namespace.tenant, lineage):
        return RenderedRules(labels, ())
    return RenderedRules({**labels, OWN_MARK: "own"}, _children(rules, tenantnamespace.meta(namespace, NAME)))


def _children(rules: TenancyRulesSpec, meta: ObjectMeta) -> tuple[Child, ...]:
    return tuple(
        Child(object=each, wave=tenantnamespace.WAVE_LIMITS, with_namespace=True) for each in objects(rules, meta)
    )


def objects(rules: TenancyRulesSpec, meta: ObjectMeta) -> list[KubernetesObject]:
    """Return rules as people read them, and as the policies do: what enforces always, the other sections if any.

    Args:
        rules: What is in force.
        meta: The metadata of the TenancyRules.
    """
    found: list[KubernetesObject] = [TenancyRules(metadata=meta, spec=rules)]
    for section, name in MAPS.items():
        forms = text.encoded(getattr(rules, section))
        if forms or section == ENFORCED:
            labels = {**meta.labels, OWN_MARK: section}
            found.append(RulesMap(metadata=msgspec.structs.replace(meta, name=name, labels=labels), data=forms))
    return found


def _reclaim_labels(rules: TenancyRulesSpec) -> dict[str, str]:
    """Return what a namespace says of the reclaim policies of its volumes, where that is not the usual."""
    labels: dict[str, str] = {}
    for section in SECTIONS:
        listed = getattr(rules, section).allowed.get(RECLAIM_POLICIES)
        if listed is not None and (section != ENFORCED or listed.values != (RECLAIMED,)):
            labels[reclaim_mark(section)] = ".".join(sorted(listed.values))
    return labels


def shared(defaults: Rules, sandbox: Sandbox = NO_SANDBOX) -> tuple[Child, ...]:
    """Return the rules of all namespaces that have none of their own.

    Args:
        defaults: The cluster's.
        sandbox: What the cluster has; who is to run in it says a label of each namespace.

    Raises:
        InputError: As `rules_of`.
    """
    meta = ObjectMeta(name=NAME, namespace=marks.SYSTEM_NAMESPACE, labels={marks.MANAGED_BY: marks.MANAGER})
    return _children(_with_sandbox(effective([Layer(DEFAULTS_SOURCE, defaults)]), sandbox, "the Tenant"), meta)


def of_slices(defaults: SliceDefaults) -> Child:
    """Return what policies know of what may be asked of slices."""
    labels = {marks.MANAGED_BY: marks.MANAGER, OWN_MARK: "slices"}
    meta = ObjectMeta(name=LIMITS_MAP, namespace=marks.SYSTEM_NAMESPACE, labels=labels)
    data = {MAX_GRACE: str(defaults.max_grace_period_seconds)}
    return Child(object=RulesMap(metadata=meta, data=data), wave=tenantnamespace.WAVE_LIMITS)


def refuser(defaults: Rules, tenant: Tenant, lineage: Sequence[Subnamespace] = ()) -> str:
    """Return who has set the rule that refuses pods where there is no sandbox; "" where they may run.

    Args:
        defaults: The cluster's.
        tenant: Whose namespace it is.
        lineage: As in `rules_of`.
    """
    asks = lineage[-1].spec.isolation.runtime if lineage else tenant.spec.isolation.runtime
    if asks is not RuntimeChoice.SANDBOXED:
        return ""  # it is not told
    try:
        return rules_of(defaults, tenant, lineage).enforce.refused.get(MISSING, "")
    except InputError:
        return ""  # the condition Ready says so


# -- the sandbox ----------------------------------------------------------------------------------


def _with_sandbox(rules: TenancyRulesSpec, sandbox: Sandbox, source: str) -> TenancyRulesSpec:
    """Return rules with the sandbox's name among them."""
    if not sandbox.name:
        return rules
    chosen = {RUNTIME_CLASS: Bound(source=source, value=sandbox.name)}

    def told(section: Section) -> Section:
        return msgspec.structs.replace(section, chosen=dict(sorted({**section.chosen, **chosen}.items())))

    # What only warns, or notes, has to know it as well, and it costs nothing if no rule does.
    return TenancyRulesSpec(
        enforce=told(rules.enforce),
        warn=rules.warn if rules.warn.is_empty else told(rules.warn),
        audit=rules.audit if rules.audit.is_empty else told(rules.audit),
    )


def _sandboxer(tenant: Tenant, lineage: Sequence[Subnamespace]) -> str:
    """Return who it is, of the Tenant and the Subnamespaces below it, that wants pods sandboxed."""
    below = next((each for each in lineage if each.spec.isolation.runtime is RuntimeChoice.SANDBOXED), None)
    if below is None or tenant.spec.isolation.runtime is RuntimeChoice.SANDBOXED:
        return f"Tenant {tenant.metadata.name!r}"
    return f"Subnamespace {below.key!r}"


def _below(lineage: Sequence[Subnamespace]) -> list[RuntimeChoice | None]:
    return [_given(each.spec.isolation.runtime) for each in lineage]


def _given(runtime: RuntimeChoice | UnsetType) -> RuntimeChoice | None:
    return None if runtime is UNSET else runtime
