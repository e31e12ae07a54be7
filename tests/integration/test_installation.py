"""Sabotage of the installation: the audit reports each changed object, and the operator repairs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from tenantry.api.marks import INSTALLED_VERSION
from tenantry.api.model import Resource
from tenantry.api.policyparameters import PolicyParameters
from tenantry.engine.tasks import all_of
from tenantry.install import apply, manifests
from tenantry.install.repairs import REPAIRS
from tenantry.install.waves import resource_of
from tenantry.kube import wire
from tenantry.views.installation import differences
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
    value["subjects"] = [*value["subjects"], one]


def _unlabelled(value: Json) -> None:
    value["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged"


def _all_of(kind: str, change: Callable[[Json], None], field: str) -> list[Sabotage]:
    return [Sabotage(kind, name, change, field) for name in _names(kind)]


WEAKENED = [
    *_all_of("ValidatingAdmissionPolicy", _disarmed, "spec.matchConditions"),
    *_all_of("MutatingAdmissionPolicy", _disarmed, "spec.matchConditions"),
    *_all_of("ValidatingAdmissionPolicyBinding", _unenforced, "spec.validationActions"),
    Sabotage("ClusterRole", "tenantry-aggregate-to-owner", _widened, "rules"),
    Sabotage("ClusterRole", "tenantry-admin", _widened, "rules"),
    Sabotage("ClusterRole", "tenantry-operator", _widened, "rules"),
    Sabotage("ClusterRole", REPAIRS, _widened, "rules"),
    Sabotage("ClusterRoleBinding", "tenantry-operator", _bound, "subjects"),
    Sabotage("ClusterRoleBinding", REPAIRS, _bound, "subjects"),
    Sabotage("Namespace", SYSTEM, _unlabelled, "metadata.labels[pod-security.kubernetes.io/enforce]"),
]
MISSING = [("ValidatingAdmissionPolicyBinding", "tenantry-namespaces"), ("ClusterRole", "tenantry-owners-approve")]


async def _sabotage(api: Api, each: Sabotage) -> None:
    """Change an object, and keep everything else as it is."""
    resource = _resource(each.kind)
    value = await api.get(resource, each.name)
    each.change(value)
    await api.client.request("PUT", wire.path(resource, "", each.name), body=msgspec.json.encode(value))


async def _clean(api: Api) -> bool:
    return await differences(api.client) == ()


async def _events(api: Api, name: str) -> list[Json]:
    found = await api.list(EVENTS, "default")
    return [each for each in found if each["regarding"]["name"] == name]


async def test_every_sabotage_of_the_installation_is_reported_and_then_repaired(api: Api, operator: Operator) -> None:
    """X06: a condition that turns a policy off, a weaker binding, a wider role, a looser label, a deletion."""
    await until(lambda: _clean(api), "nothing differs before the sabotage")
    await operator.stop()
    parameters = PolicyParameters.resource
    (rules,) = [each for each in await api.list(parameters, SYSTEM) if each["metadata"]["name"] == "tenantry-rules"]
    annotations = dict.fromkeys(rules["metadata"]["annotations"], "")
    gone = {f"{kind} {name!r} is missing" for kind, name in MISSING}
    weakened = [each for each in WEAKENED if (each.kind, each.name) not in MISSING]
    await all_of(_sabotage(api, each) for each in weakened)
    await all_of(api.delete(_resource(kind), name) for kind, name in MISSING)
    await api.patch(parameters, "tenantry-rules", {"metadata": {"annotations": annotations}}, SYSTEM)
    try:
        said = set(await differences(api.client) or ())
    finally:
        await operator.start()
    assert said == gone | {f"{each.kind} {each.name!r} differs in {each.field}" for each in weakened} | {
        f"LimitRange '{SYSTEM}/tenantry-rules' differs from what TenancyDefaults says"
    }
    await until(lambda: _clean(api), "the operator has repaired everything")


async def test_an_exemption_for_one_more_person_is_reported(api: Api, operator: Operator) -> None:
    """X06: in a condition that otherwise stays as it is."""
    await until(lambda: _clean(api), "nothing differs before the sabotage")
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
    await until(lambda: _clean(api), "nothing differs before the sabotage")
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
    await until(lambda: _clean(api), "nothing differs after the sabotage")


def _is(made: Json, each: Sabotage) -> bool:
    return (made["kind"], made["metadata"]["name"]) == (each.kind, each.name)


def _newer(value: Json) -> None:
    _disarmed(value)
    value["metadata"]["labels"][INSTALLED_VERSION] = "99.0.0"
