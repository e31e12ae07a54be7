"""The policy that marks ServiceAccounts and token Secrets with the user who created them. Pure.

A removed owner may hold tokens of ServiceAccounts, which stay valid. The mark is how an administrator finds those that
this owner created. The policy on marks refuses another value, and every later change.

Source: Kubernetes, "Mutating Admission Policy", "Managing Service Accounts" (long-lived tokens).
"""

from __future__ import annotations

from tenantry.api.marks import MADE_BY
from tenantry.api.model import Json
from tenantry.api.tokens import TOKEN_SECRET
from tenantry.install.policy import IN_TENANTS, KUBERNETES, bound, by, mutating, rule

MAKERS = "tenantry-makers"
RESOURCES = ("serviceaccounts", "secrets")


def everything(subject: Json) -> list[Json]:
    """Return the policy and its binding.

    Args:
        subject: The operator, as RBAC names it. Its copies of inherited ServiceAccounts have no marks of this kind.
    """
    key = MADE_BY.replace("/", "~1")
    user = "request.userInfo.username"
    at = "'/metadata/annotations"
    patch = (
        f"[has(object.metadata.annotations) ? JSONPatch{{op: 'add', path: {at}/{key}', value: {user}}}"
        f" : JSONPatch{{op: 'add', path: {at}', value: {{'{MADE_BY}': {user}}}}}]"
    )
    gives_tokens = f"request.resource.resource == 'serviceaccounts' || object.?type.orValue('') == '{TOKEN_SECRET}'"
    policy = mutating(
        MAKERS,
        [rule("", RESOURCES, "CREATE", apiVersions=["v1"])],
        [patch],
        conditions={
            "gives-tokens": gives_tokens,
            "not-kubernetes": f"!{KUBERNETES}",
            "not-the-operator": f"!({by(subject)})",
        },
        where=IN_TENANTS,
        # A mutation that runs later must not leave another name there.
        reinvoked="IfNeeded",
    )
    return bound(policy)


def is_stamped(key: str) -> str:
    """Return CEL: whether a key of a new object is the mark that the policy has set, and in annotations only."""
    stamp = f"object.?metadata.annotations[?'{MADE_BY}']"
    resources = ", ".join(f"'{resource}'" for resource in RESOURCES)
    return (
        f"({key} == '{MADE_BY}' && request.operation == 'CREATE' && request.resource.resource in [{resources}]"
        f" && {stamp}.orValue('') == request.userInfo.username"
        f" && !('{MADE_BY}' in object.?metadata.labels.orValue({{}})))"
    )
