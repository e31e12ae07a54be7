"""Which subjects may do something in a namespace, by which binding and role: pure.

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


class RequestedAccess(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose permission is in question.

    Args:
        verb: For example get.
        group: The API group; "" for the core group.
        resource: The plural, with its subresource, for example pods or pods/log.
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

    def allows(self, wanted: RequestedAccess) -> bool:
        """Return whether the rule allows a request."""
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


class RbacSubject(msgspec.Struct, frozen=True, kw_only=True):
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
    """A RoleBinding or ClusterRoleBinding.

    Args:
        own: Its kind and name.
        role: The role that it binds.
        subjects: Its subjects.
        inherited_from: The namespace that the operator copies it from; "" for none.
    """

    own: Reference
    role: Reference
    subjects: tuple[RbacSubject, ...]
    inherited_from: str = ""


class Grant(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A subject that is allowed, and why.

    Args:
        subject: The subject.
        binding: The binding that names it.
        role: The role that allows the request.
        inherited_from: The namespace that the binding is copied from; "" for its own.
        is_owner: The subject owns the namespace.
        is_cluster_wide: The binding applies to every namespace.
    """

    subject: RbacSubject
    binding: Reference
    role: Reference
    inherited_from: str = ""
    is_owner: bool = False
    is_cluster_wide: bool = False


_OWNERS = (Reference("ClusterRole", marks.OWNER_ROLE), Reference("Role", marks.OWNER_ROLE))
"""The roles of owners: of those who work with a control plane of their own, a Role of the namespace."""


def grants(
    bindings: Iterable[Binding], roles: Mapping[Reference, Sequence[PolicyRule]], wanted: RequestedAccess
) -> list[Grant]:
    """Return the subjects that are allowed by bindings whose roles are known, sorted.

    Args:
        bindings: Of the namespace, and of the whole cluster.
        roles: The rules of the known roles.
        wanted: The request.
    """
    allowing = {role for role, rules in roles.items() if any(rule.allows(wanted) for rule in rules)}
    return in_order(grant(each, subject) for each in bindings if each.role in allowing for subject in each.subjects)


def grant(binding: Binding, subject: RbacSubject) -> Grant:
    """Return the grant of a binding to one of its subjects."""
    return Grant(
        subject=subject,
        binding=binding.own,
        role=binding.role,
        inherited_from=binding.inherited_from,
        is_owner=binding.role in _OWNERS and binding.own.kind == "RoleBinding",
        is_cluster_wide=binding.own.kind == "ClusterRoleBinding",
    )


def in_order(found: Iterable[Grant]) -> list[Grant]:
    """Return grants sorted, without duplicates."""

    def order(each: Grant) -> tuple[str, ...]:
        subject, binding = each.subject, each.binding
        return (subject.kind, subject.namespace, subject.name, binding.kind, binding.name)

    return sorted(dict.fromkeys(found), key=order)


def unknown(bindings: Iterable[Binding], roles: Mapping[Reference, Sequence[PolicyRule]]) -> Iterator[Binding]:
    """Yield the bindings whose roles are unknown."""
    return (each for each in bindings if each.role not in roles)


def by_reason(reason: str, subject: RbacSubject, bindings: Iterable[Binding]) -> Grant | None:
    """Return the grant that the API server names in its answer to an access review; None if it names no binding.

    Args:
        reason: Of the review's status (Kubernetes: RBAC's authorizer, "RBAC: allowed by …").
        subject: The subject of the review.
        bindings: The known bindings.
    """
    found = _REASON.fullmatch(reason)
    if found is None:
        return None
    kind = found["binding_kind"]
    # The authorizer writes a RoleBinding as NAME/NAMESPACE.
    name = found["binding"].rpartition("/")[0] if kind == "RoleBinding" else found["binding"]
    own = Reference(kind, name)
    for each in bindings:
        if each.own == own:
            return grant(each, subject)
    return grant(Binding(own=own, role=Reference(found["role_kind"], found["role"]), subjects=()), subject)
