"""Who may do something in a namespace, by which binding and role: pure.

Source: Kubernetes, "Using RBAC Authorization".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from tenantry.api import marks

EVERYTHING = "*"

_REASON = re.compile(
    r'RBAC: allowed by (?P<binding_kind>RoleBinding|ClusterRoleBinding) "(?P<binding>[^"]*)"'
    r' of (?P<role_kind>Role|ClusterRole) "(?P<role>[^"]*)" to .*'
)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done.

    Args:
        verb: As in get.
        group: The API group; "" for the core group.
        resource: The plural, with its subresource, as in pods or pods/log.
        name: Of one object; "" for any.
    """

    verb: str
    group: str
    resource: str
    name: str = ""


class PolicyRule(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One rule of a role."""

    verbs: tuple[str, ...] | None = ()
    api_groups: tuple[str, ...] | None = ()
    resources: tuple[str, ...] | None = ()
    resource_names: tuple[str, ...] | None = ()

    def allows(self, wanted: Wanted) -> bool:
        """Tell whether it allows something."""
        names = self.resource_names or ()
        return (
            _among(wanted.verb, self.verbs)
            and _among(wanted.group, self.api_groups)
            and any(_is_about(each, wanted.resource) for each in self.resources or ())
            and (not names or wanted.name in names)
        )


def _among(value: str, values: Sequence[str] | None) -> bool:
    return value in (values or ()) or EVERYTHING in (values or ())


def _is_about(rule: str, resource: str) -> bool:
    _, slash, subresource = resource.partition("/")
    return rule in {EVERYTHING, resource} or (bool(slash) and rule == f"*/{subresource}")


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A user, a group, or a service account with its namespace."""

    kind: str
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        """Return it as in a table."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Reference(msgspec.Struct, frozen=True):
    """A role or a binding."""

    kind: str
    name: str


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """A binding as it is.

    Args:
        own: It.
        role: What it gives.
        subjects: To whom.
        inherited_from: The namespace that it is kept the same as; "" for none.
    """

    own: Reference
    role: Reference
    subjects: tuple[Subject, ...]
    inherited_from: str = ""


class Holder(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Who may, and why.

    Args:
        subject: Who.
        binding: By which binding.
        role: By which role.
        inherited_from: The namespace that the binding comes from; "" for its own.
        is_owner: They are an owner of the namespace.
        is_cluster_wide: They may in every namespace.
    """

    subject: Subject
    binding: Reference
    role: Reference
    inherited_from: str = ""
    is_owner: bool = False
    is_cluster_wide: bool = False


def holders(
    bindings: Iterable[Binding], roles: Mapping[Reference, Sequence[PolicyRule]], wanted: Wanted
) -> list[Holder]:
    """Return who may, by bindings whose roles are known, sorted.

    Args:
        bindings: Of the namespace, and of the whole cluster.
        roles: Those that are known.
        wanted: What.
    """
    allowing = {role for role, rules in roles.items() if any(rule.allows(wanted) for rule in rules)}
    return in_order(holder(each, subject) for each in bindings if each.role in allowing for subject in each.subjects)


def holder(binding: Binding, subject: Subject) -> Holder:
    """Return one subject of a binding as one who may."""
    return Holder(
        subject=subject,
        binding=binding.own,
        role=binding.role,
        inherited_from=binding.inherited_from,
        is_owner=binding.role == Reference("ClusterRole", marks.OWNER_ROLE) and binding.own.kind == "RoleBinding",
        is_cluster_wide=binding.own.kind == "ClusterRoleBinding",
    )


def in_order(found: Iterable[Holder]) -> list[Holder]:
    """Return them sorted, each once."""

    def order(each: Holder) -> tuple[str, ...]:
        subject, binding = each.subject, each.binding
        return (subject.kind, subject.namespace, subject.name, binding.kind, binding.name)

    return sorted(dict.fromkeys(found), key=order)


def unknown(bindings: Iterable[Binding], roles: Mapping[Reference, Sequence[PolicyRule]]) -> Iterator[Binding]:
    """Yield the bindings whose roles are not known."""
    return (each for each in bindings if each.role not in roles)


def by_reason(reason: str, subject: Subject, bindings: Iterable[Binding]) -> Holder | None:
    """Return one of whom the API server says that they may, by the binding that it names; None where it names none.

    Args:
        reason: What it says (Kubernetes: RBAC's authorizer, "RBAC: allowed by …").
        subject: Who.
        bindings: Those that are known.
    """
    found = _REASON.fullmatch(reason)
    if found is None:
        return None
    kind = found["binding_kind"]
    # It tells a RoleBinding as NAME/NAMESPACE.
    name = found["binding"].rpartition("/")[0] if kind == "RoleBinding" else found["binding"]
    own = Reference(kind, name)
    for each in bindings:
        if each.own == own:
            return holder(each, subject)
    return holder(Binding(own=own, role=Reference(found["role_kind"], found["role"]), subjects=()), subject)
