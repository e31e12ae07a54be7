"""The policies on Subnamespaces, which hold while the operator is down. Pure.

Source: Kubernetes, "Validating Admission Policy".
"""

from __future__ import annotations

from tenantry.api import marks
from tenantry.api.model import Json
from tenantry.api.subnamespace import Subnamespace
from tenantry.install.policy import (
    ADMINISTER,
    EXPIRES_LATER,
    IN_TENANTS,
    Named,
    bound,
    in_a_tenant,
    not_administrator,
    not_operator,
    rule,
    says,
    validating,
)

RULES = "tenantry-subnamespaces"
SUBTENANTS = "tenantry-subtenants"
OWNERS = "tenantry-subtenant-owners"
QUOTA = "tenantry-subnamespace-quota"
GROWTH = "tenantry-subnamespace-growth"

_SUBTENANT = {"a-subtenant": "object.spec.mode == 'Subtenant'"}
_OWNERS = "(has(object.spec.owners) ? object.spec.owners : [])"
_WHO_DELETES_ALL = (
    "(request.userInfo.username == 'system:serviceaccount:kube-system:namespace-controller'"
    " || request.userInfo.username == 'system:serviceaccount:kube-system:generic-garbage-collector')"
)


def everything(subject: Json) -> list[Json]:
    """Return the policies on Subnamespaces and their bindings.

    Args:
        subject: The operator, as RBAC names it.
    """
    # The operator writes to every new Subnamespace, and deletes those that have moved.
    other = not_operator(subject)
    ruled = not_administrator(subject)
    return [*_rules(other), *_subtenants(ruled), *_owners(ruled), *_quota(other)]


def _about(*operations: str) -> list[Json]:
    resource = Subnamespace.resource
    return [rule(resource.group, [resource.plural], *operations)]


def _rules(other: Named) -> list[Json]:
    """Return the policy for all Subnamespaces (E05, E07, X05)."""
    deleting = "request.operation == 'DELETE'"
    adopts = "request.operation == 'CREATE' && has(object.spec.adopt) && has(object.spec.adopt.parent)"
    may_take = (
        f"authorizer.group('{marks.GROUP}').resource('subnamespaces').namespace(object.spec.adopt.parent)"
        ".name(object.metadata.name).check('delete').allowed()"
    )
    inside = "has(oldObject.status) && has(oldObject.status.children) && oldObject.status.children > 0"
    cascades = "has(oldObject.spec.allowCascadingDeletion) && oldObject.spec.allowCascadingDeletion"
    names = "(has(oldObject.status.firstChildren) ? ': ' + oldObject.status.firstChildren.join(', ') : '')"
    keeps = f"has(oldObject.metadata.finalizers) && '{marks.FINALIZER}' in oldObject.metadata.finalizers"
    stays = f"has(object.metadata.finalizers) && '{marks.FINALIZER}' in object.metadata.finalizers"
    validations = [
        says(
            f"request.operation != 'UPDATE' || !({keeps}) || {stays} || {ADMINISTER}",
            f"metadata.finalizers must keep {marks.FINALIZER}, without which the child namespace would be left"
            " behind; to end it, delete the Subnamespace",
        ),
        in_a_tenant("the Subnamespace"),
        says(f"{deleting} || {EXPIRES_LATER}", "spec.expiresAt must be in the future"),
        says(
            f"{deleting} || !({adopts}) || {may_take}",
            "spec.adopt.parent must be a namespace in which you may delete Subnamespaces: a move deletes it there",
        ),
        says(
            f"{deleting} || !({adopts})"
            f" || !((object.spec.adopt['namespace'] + '{marks.TREE_SUFFIX}') in namespaceObject.metadata.labels)",
            "spec.adopt.namespace must not be above this namespace: a tree has no cycles",
        ),
        says(
            f"!({deleting}) || {_WHO_DELETES_ALL} || {cascades} || !({inside})",
            f"string(oldObject.status.children) + ' Subnamespaces are inside' + {names}"
            " + '; delete them first, or set spec.allowCascadingDeletion to true'",
            told=True,
        ),
    ]
    about = _about("CREATE", "UPDATE", "DELETE")
    return bound(validating(RULES, about, validations, conditions=other))


def _subtenants(ruled: Named) -> list[Json]:
    """Return the policy that keeps a parent from entering its Subtenants through their specs (E05).

    It also holds while the parent's owners are not recorded.
    """
    old = "(has(oldObject.spec.owners) ? oldObject.spec.owners : [])"
    created = "request.operation == 'CREATE'"
    validations = [
        says(
            f"{created} || {_OWNERS} == {old}", "spec.owners of a Subtenant must not change: only an administrator can"
        ),
        says(
            f"{created} || object.spec.inheritance == oldObject.spec.inheritance",
            "spec.inheritance of a Subtenant must not change: objects are copied before its owners are admitted",
        ),
        says(
            f"!({created}) || {_OWNERS}.all(o, !(o.kind == 'User' && o.name == request.userInfo.username)"
            " && !(o.kind == 'Group' && o.name in request.userInfo.groups))",
            "spec.owners of a Subtenant must not name you or a group of yours: the parent must not see into it",
        ),
        says(
            f"!({created}) || {_OWNERS}.all(o, o.kind != 'ServiceAccount')",
            "spec.owners of a Subtenant must not name a ServiceAccount, which users of the parent may act as; name a"
            " User or a Group",
        ),
    ]
    conditions = {**_SUBTENANT, **ruled}
    return bound(validating(SUBTENANTS, _about("CREATE", "UPDATE"), validations, conditions=conditions))


def _owners(ruled: Named) -> list[Json]:
    """Return the policy that keeps owners of a parent from owning its Subtenants (E05).

    The owners of the parent are an annotation of its namespace. Their binding as a parameter would make the API server
    wait for all RoleBindings of all tenants when it starts.
    """
    listed = f"namespaceObject.?metadata.annotations[?'{marks.OWNERS}']"
    validations = [
        says(
            f"{listed}.hasValue()",
            "'the owners of namespace ' + request.namespace + ' are not recorded yet: the operator does that when it"
            " starts; try again'",
            told=True,
        ),
        says(
            # The other policy refuses users that name themselves, and ServiceAccounts.
            f"{_OWNERS}.all(o, o.kind == 'User' && o.name == request.userInfo.username"
            f" || !{listed}.orValue('').contains('\\n' + o.kind + ' ' + o.name + '\\n'))",
            "spec.owners of a Subtenant must not name an owner of the parent, which must not see into it",
        ),
    ]
    policy = validating(OWNERS, _about("CREATE"), validations, where=IN_TENANTS, conditions={**_SUBTENANT, **ruled})
    return bound(policy)


def _quota(other: Named) -> list[Json]:
    """Return the policies that refuse, or warn of, a share that the parent cannot give now (E09, E11).

    The parent's own ResourceQuota is the parameter: it can give its unused amounts. The operator checks again, for the
    whole tree.

    A backup has the ResourceQuota of a parent without the shares of its children. So the ResourceQuota of a restored
    parent cannot give these shares a second time, and no Subnamespace with more than the parent keeps could come back.
    An administrator may therefore create one that has the operator's finalizer already, as only a backup has it: the
    operator grants no share beyond the tenant's quota. Labels of namespaces cannot show whether a tree is adopted,
    because a backup has them, too.
    """
    normal = "(k.matches('^(cpu|memory|ephemeral-storage|storage|hugepages-.*)$') ? 'requests.' + k : k)"
    hard = "(has(object.spec.quota) && has(object.spec.quota.hard) ? object.spec.quota.hard : {})"
    before = (
        "(request.operation == 'UPDATE' && has(oldObject.spec.quota) && has(oldObject.spec.quota.hard)"
        " ? oldObject.spec.quota.hard : {})"
    )
    variables = {
        "asked": hard,
        "before": before,
        "changed": "request.operation == 'CREATE' || variables.asked != variables.before",
        "limited": "has(params.spec.hard) ? params.spec.hard : {}",
        "inForce": "has(params.status) && has(params.status.hard) ? params.status.hard : {}",
        "used": "has(params.status) && has(params.status.used) ? params.status.used : {}",
        "unknown": f"variables.asked.filter(k, !({normal} in variables.limited))",
        "short": (
            f"variables.asked.filter(k, {normal} in variables.inForce"
            f" && (!(k in variables.before) || quantity(string(variables.asked[k])).isGreaterThan("
            f"quantity(string(variables.before[k]))))"
            f" && quantity(string(variables.asked[k])).sub(k in variables.before"
            f" ? quantity(string(variables.before[k])) : quantity('0')).isGreaterThan("
            f"quantity(variables.inForce[{normal}]).sub({normal} in variables.used"
            f" ? quantity(variables.used[{normal}]) : quantity('0'))))"
        ),
    }
    known = says(
        "!variables.changed || size(variables.unknown) == 0",
        "'spec.quota.hard must not have ' + variables.unknown.join(', ')"
        " + ': the tenant\\'s quota does not limit it, and a quota covers the whole tree or none of it'",
        told=True,
    )
    enough = says(
        "!variables.changed || size(variables.short) == 0",
        "'spec.quota.hard must not exceed what ' + request.namespace + ' can give: ' + variables.short.map(k,"
        f" k + ': ' + string(variables.asked[k]) + ' requested, ' + string(variables.inForce[{normal}])"
        f" + ' assigned, ' + ({normal} in variables.used ? string(variables.used[{normal}]) : '0')"
        " + ' used').join('; ') + '; request less, free some, or see tenantry explain quota'",
        told=True,
    )
    param = {"apiVersion": "v1", "kind": "ResourceQuota"}
    reference = {"name": "tenantry-quota", "parameterNotFoundAction": "Allow"}
    restored = f"has(object.metadata.finalizers) && '{marks.FINALIZER}' in object.metadata.finalizers && {ADMINISTER}"
    making = {**enough, "expression": f"request.operation == 'UPDATE' || {enough['expression']} || ({restored})"}
    # A growing share may wait for a sibling that is about to shrink: the user is warned, and the condition names the
    # shortage until it is over. Requests that do not change the share are not checked.
    changes = {
        "asks-for-another-share": (
            "has(object.spec.quota) && has(object.spec.quota.hard) && (request.operation == 'CREATE'"
            " || !has(oldObject.spec.quota) || object.spec.quota != oldObject.spec.quota)"
        )
    }
    shape: Json = {"params": param, "conditions": {**other, **changes}}
    of_growth = {name: cel for name, cel in variables.items() if name not in {"limited", "unknown"}}
    guard = validating(QUOTA, _about("CREATE", "UPDATE"), [known, making], variables=variables, **shape)
    warning = validating(GROWTH, _about("UPDATE"), [enough], variables=of_growth, **shape)
    return [
        *bound(guard, paramRef=reference),
        *bound(warning, paramRef=reference, validationActions=["Warn"]),
    ]
