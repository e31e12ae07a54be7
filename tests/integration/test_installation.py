"""Sabotage of the installation: the audit reports each changed object, and the operator repairs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from tenantry.api.errors import Conflict
from tenantry.api.marks import INSTALLED_VERSION, MANAGED_BY
from tenantry.api.model import Resource
from tenantry.api.policyparameters import PolicyParameters
from tenantry.engine.tasks import all_of
from tenantry.install import apply, manifests
from tenantry.install.repairs import is_repaired
from tenantry.install.waves import resource_of
from tenantry.kube import wire
from tenantry.views.installation import BY_OPERATOR, differences
from testkit.api import EVENTS, Api, until
from testkit.operators import Operator

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]
SYSTEM = "tenantry-system"
SHIPPED = manifests.foundation(manifests.LOCAL_USER)
NEVER = {"name": "never", "expression": "false"}
MORE = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


class Sabotage(NamedTuple):
    """A change of an installed object, and the field that is reported."""

    kind: str
    name: str
    change: Callable[[Json], None]
    field: str


def _resource(kind: str) -> Resource:
    return next(resource_of(each) for each in SHIPPED if each["kind"] == kind)


def _namespace(kind: str, name: str) -> str:
    """Return the namespace of the shipped object of a name; "" for a cluster-scoped one."""
    metas = [each["metadata"] for each in SHIPPED if each["kind"] == kind and each["metadata"]["name"] == name]
    namespace: str = metas[0].get("namespace", "")
    return namespace


def _names(kind: str) -> list[str]:
    return [each["metadata"]["name"] for each in SHIPPED if each["kind"] == kind]


def _disarmed(value: Json) -> None:
    """A condition that never holds turns a policy off, and keeps everything else as it is."""
    value["spec"]["matchConditions"] = [*value["spec"].get("matchConditions", []), NEVER]


def _unenforced(value: Json) -> None:
    is_audit = value["spec"]["validationActions"] == ["Audit"]
    value["spec"]["validationActions"] = ["Warn" if is_audit else "Audit"]


def _exempted(value: Json) -> None:
    first = value["spec"]["matchConditions"][0]
    first["expression"] = f"({first['expression']}) && request.userInfo.username != 'mallory'"


def _widened(value: Json) -> None:
    value["rules"] = [*(value.get("rules") or []), MORE]


def _bound(value: Json) -> None:
    one = {"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}
    value["subjects"] = [*value.get("subjects", []), one]


def _unlabelled(value: Json) -> None:
    value["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged"


def _unmarked(value: Json) -> None:
    """Of the kinds that other controllers keep, only the marks are compared."""
    value["metadata"]["labels"][MANAGED_BY] = "mallory"


def _unselective(value: Json) -> None:
    """A selector that no object meets turns a binding off."""
    match = value["spec"].get("matchResources", {})
    value["spec"]["matchResources"] = {**match, "objectSelector": {"matchLabels": {"never": "true"}}}


def _unvalidated(value: Json) -> None:
    value["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }


def _aggregated(value: Json) -> None:
    value["aggregationRule"]["clusterRoleSelectors"].append({"matchLabels": {"mallory": "true"}})


_MARK = (_unmarked, f"metadata.labels[{MANAGED_BY}]")
CHANGES: dict[str, tuple[Callable[[Json], None], str]] = {
    "ValidatingAdmissionPolicy": (_disarmed, "spec.matchConditions"),
    "MutatingAdmissionPolicy": (_disarmed, "spec.matchConditions"),
    "ValidatingAdmissionPolicyBinding": (_unenforced, "spec.validationActions"),
    "MutatingAdmissionPolicyBinding": (_unselective, "spec.matchResources"),
    "ClusterRole": (_widened, "rules"),
    "Role": (_widened, "rules"),
    "ClusterRoleBinding": (_bound, "subjects"),
    "RoleBinding": (_bound, "subjects"),
    "CustomResourceDefinition": (_unvalidated, "spec.versions"),
    "Namespace": (_unlabelled, "metadata.labels[pod-security.kubernetes.io/enforce]"),
    "LimitRange": _MARK,
    "FlowSchema": _MARK,
    "PriorityLevelConfiguration": _MARK,
}
"""The change of each shipped kind, and the field that is reported."""

KEPT = {"Namespace", "PriorityLevelConfiguration"}
"""Kinds with one object, which is changed: what the namespace holds would be gone with it."""

SPARE = "isolationreports.tenantry.dev"
"""A kind of which no other test needs the objects."""


def _missing(kind: str) -> str:
    """Return the name of the object that is deleted."""
    return SPARE if kind == "CustomResourceDefinition" else max(_names(kind))


KINDS = sorted({each["kind"] for each in SHIPPED})
MISSING = [(kind, _missing(kind)) for kind in KINDS if kind not in KEPT]


def _weakened() -> list[Sabotage]:
    """Return the change of every object that is not deleted; of custom kinds, of one."""
    found: list[Sabotage] = []
    for value in SHIPPED:
        kind, name = value["kind"], value["metadata"]["name"]
        if (kind, name) in MISSING or (kind == "CustomResourceDefinition" and name != "nodeviews.tenantry.dev"):
            continue
        change, field = (_aggregated, "aggregationRule") if "aggregationRule" in value else CHANGES[kind]
        found.append(Sabotage(kind, name, change, field))
    return found


WEAKENED = _weakened()


async def _sabotage(api: Api, each: Sabotage) -> None:
    """Change an object, and keep everything else as it is."""
    resource, namespace = _resource(each.kind), _namespace(each.kind, each.name)

    async def done() -> bool:
        value = await api.get(resource, each.name, namespace)
        each.change(value)
        try:
            await api.client.request("PUT", wire.path(resource, namespace, each.name), body=msgspec.json.encode(value))
        except Conflict:
            return False  # Kubernetes aggregates ClusterRoles again, because another one was changed
        return True

    await until(done, f"{each.kind} {each.name!r} is changed")


async def _await_clean(api: Api, what: str) -> None:
    last: tuple[str, ...] | None = None

    async def is_clean() -> bool:
        nonlocal last
        last = await differences(api.client)
        return last == ()

    await until(is_clean, what, seen=lambda: last)


async def _events(api: Api, name: str) -> list[Json]:
    found = await api.list(EVENTS, "default")
    return [each for each in found if each["regarding"]["name"] == name]


@pytest.mark.long
async def test_every_sabotage_of_the_installation_is_reported_and_then_repaired(api: Api, operator: Operator) -> None:
    """X06: objects of every shipped kind; the operator repairs the kinds that no other controller keeps."""
    await _await_clean(api, "nothing differs before the sabotage")
    await operator.stop()
    parameters = PolicyParameters.resource
    (rules,) = [each for each in await api.list(parameters, SYSTEM) if each["metadata"]["name"] == "tenantry-rules"]
    annotations = dict.fromkeys(rules["metadata"]["annotations"], "")
    assert {each.kind for each in WEAKENED} == set(KINDS)
    try:
        await all_of(_sabotage(api, each) for each in WEAKENED)
        await all_of(api.delete(_resource(kind), name, _namespace(kind, name)) for kind, name in MISSING)
        await api.patch(parameters, "tenantry-rules", {"metadata": {"annotations": annotations}}, SYSTEM)
        said = set(await differences(api.client) or ())
    finally:
        await apply.apply(api.client, [each for each in SHIPPED if not is_repaired(each)])
        await operator.start()
    left = dict.fromkeys(manifests.OF_OPERATOR, BY_OPERATOR)
    gone = {f"{kind} {name!r} is missing{left.get((kind, name), '')}" for kind, name in MISSING}
    gone.add(f"LimitRange '{SYSTEM}/tenantry-rules' differs from what TenancyDefaults says{BY_OPERATOR}")
    assert gone <= said
    reported = {line.partition(" differs in ")[::2] for line in said - gone}
    expected = {f"{each.kind} {each.name!r}": each.field for each in WEAKENED}
    assert {told for told, _ in reported} == expected.keys()
    assert [(told, field) for told, field in reported if not field.startswith(expected[told])] == []
    await _await_clean(api, "the operator has repaired everything")


async def test_an_exemption_for_one_more_person_is_reported(api: Api, operator: Operator) -> None:
    """X06: in a condition that otherwise stays as it is."""
    await _await_clean(api, "nothing differs before the sabotage")
    await operator.stop()
    await _sabotage(api, Sabotage("ValidatingAdmissionPolicy", "tenantry-namespaces", _exempted, ""))
    try:
        said = await differences(api.client)
    finally:
        await operator.start()
    assert said == ("ValidatingAdmissionPolicy 'tenantry-namespaces' differs in spec.matchConditions",)


async def test_an_installation_removes_what_was_added(api: Api, operator: Operator) -> None:
    """X06: an apply alone keeps conditions that another client added, and reports that nothing changed."""
    await operator.stop()
    await _sabotage(api, Sabotage("ValidatingAdmissionPolicy", "tenantry-namespaces", _disarmed, ""))
    name = "tenantry-namespaces"
    made = [each for each in SHIPPED if each["metadata"]["name"] == name]
    await apply.apply(api.client, [each for each in made if each["kind"] == "ValidatingAdmissionPolicy"])
    try:
        assert NEVER["name"] not in str(await api.get(_resource("ValidatingAdmissionPolicy"), name))
    finally:
        await operator.start()


async def test_the_operator_restores_what_another_client_changes(api: Api, operator: Operator) -> None:
    """X06: a policy is deleted, another one is loosened, a binding is deleted: an event names each."""
    policies, bindings = _resource("ValidatingAdmissionPolicy"), _resource("ValidatingAdmissionPolicyBinding")
    newer = Sabotage("ValidatingAdmissionPolicy", "tenantry-closable", _newer, "")
    await _await_clean(api, "nothing differs before the sabotage")
    assert operator.is_running
    await api.delete(policies, "tenantry-marks")
    await api.delete(bindings, "tenantry-suspended")
    await _sabotage(api, newer)
    await _sabotage(api, Sabotage("ValidatingAdmissionPolicy", "tenantry-namespaces", _disarmed, ""))
    left = (
        "ValidatingAdmissionPolicy 'tenantry-closable' differs in metadata.labels[app.kubernetes.io/version],"
        " spec.matchConditions"
    )

    async def repaired() -> bool:
        return await differences(api.client) == (left,)

    try:
        await until(repaired, "the operator has repaired all but the newer policy")
        expected = {
            "tenantry-marks": "ValidatingAdmissionPolicy 'tenantry-marks' was missing",
            "tenantry-suspended": "ValidatingAdmissionPolicyBinding 'tenantry-suspended' was missing",
            "tenantry-namespaces": "ValidatingAdmissionPolicy 'tenantry-namespaces' differed in spec.matchConditions",
        }
        for name, text in expected.items():

            async def told(name: str = name, text: str = text) -> bool:
                return any(text in each["note"] for each in await _events(api, name))

            await until(told, f"an event names {name}")
    finally:
        made = SHIPPED
        (value,) = [each for each in made if _is(each, newer)]
        await apply.apply(api.client, [value])
    await _await_clean(api, "nothing differs after the sabotage")


def _is(made: Json, each: Sabotage) -> bool:
    return (made["kind"], made["metadata"]["name"]) == (each.kind, each.name)


def _newer(value: Json) -> None:
    _disarmed(value)
    value["metadata"]["labels"][INSTALLED_VERSION] = "99.0.0"
