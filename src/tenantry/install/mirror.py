"""The policy that keeps the identity of the mirrors from all users: pure.

The ServiceAccount `tenantry-mirror` of a namespace may write the marks of mirrored objects there. A user who could run
a pod as this ServiceAccount, or request its tokens, could forge them. A user who could delete or change it would stop
the mirrors of the namespace.

Source: Kubernetes, "Validating Admission Policy", "Managing Service Accounts" (TokenRequest, token Secrets).
"""

from __future__ import annotations

from tenantry.api.model import Json
from tenantry.api.tokens import ACCOUNT_NAME, TOKEN_SECRET
from tenantry.api.virtualcontrolplane import MIRROR
from tenantry.install.policy import IN_TENANTS, KUBERNETES, NEW_PODS, not_administrator, refusing, rule

NAME = "tenantry-mirror-identity"


def everything(subject: Json) -> list[Json]:
    """Return the policy and its binding.

    Args:
        subject: The operator, as RBAC names it. It requests the tokens of the mirrors.
    """
    # The deletion of a collection has no name in the request. Kubernetes empties a namespace that is being deleted.
    the_account = (
        f"(object != null ? object : oldObject).metadata.name == '{MIRROR}'"
        f" && !(request.operation != 'CREATE' && {KUBERNETES})"
    )
    # Controllers of Kubernetes create pods from templates of users: they are no exception.
    as_mirror = (
        f"request.resource.resource == 'pods' ? object.?spec.serviceAccountName.orValue('') == '{MIRROR}'"
        f" : request.resource.resource == 'serviceaccounts'"
        f" ? (has(request.subResource) ? request.name == '{MIRROR}' : {the_account})"
        f" : object.?type.orValue('') == '{TOKEN_SECRET}'"
        f" && object.?metadata.annotations[?'{ACCOUNT_NAME}'].orValue('') == '{MIRROR}'"
    )
    return refusing(
        NAME,
        [
            NEW_PODS,
            rule("", ["serviceaccounts/token"], "CREATE", apiVersions=["v1"]),
            rule("", ["serviceaccounts"], "CREATE", "UPDATE", "DELETE", apiVersions=["v1"]),
            rule("", ["secrets"], "CREATE", "UPDATE", apiVersions=["v1"]),
        ],
        f"ServiceAccount '{MIRROR}' is Tenantry's: use another ServiceAccount",
        conditions={"names-the-mirror": as_mirror, **not_administrator(subject)},
        where=IN_TENANTS,
    )
