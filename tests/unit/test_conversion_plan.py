"""What a conversion moves, and what refuses it (H01): pure."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.conversion import Conversion, ConversionStep
from tenantry.api.marks import SUSPENDED_SUBJECTS
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.subnamespace import Mode, Subnamespace, SubnamespaceSpec
from tenantry.api.tenant import Isolation, Tenant, TenantSpec, TenantStatus
from tenantry.api.virtualcontrolplane import PREFIX
from tenantry.controllers import controlplane
from tenantry.controllers.conversion import journal, objects
from tenantry.controllers.conversion.objects import (
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    ROLE_BINDINGS,
    SECRETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    Holdings,
)
from tenantry.controllers.conversion.plan import Fate, plan
from tenantry.controllers.conversion.scope import ConversionScope
from tenantry.engine.observed import Observed
from tenantry.mirror.cachedpods import MOST_BYTES
from tenantry.mirror.kinds import claims, services
from tenantry.mirror.profile import Profile
from tenantry.mirror.things import PODS

Json = dict[str, Any]


def tenant(name: str = "acme", *, journal: Conversion | UnsetType = UNSET) -> Tenant:
    spec = TenantSpec(owners=(), isolation=Isolation(control_plane=ControlPlaneChoice.VIRTUAL))
    return Tenant(metadata=ObjectMeta(name=name, uid="u-t"), spec=spec, status=TenantStatus(conversion=journal))


def scope(name: str = "acme", *, suspended: bool = False) -> ConversionScope:
    return ConversionScope(owner=tenant(name), is_suspended=suspended)


def made(name: str, *, owner: str = "", spec: Json | None = None, labels: Json | None = None, **more: object) -> Json:
    meta: Json = {"name": name, "namespace": "acme", "uid": f"u-{name}", "labels": labels or {}}
    if owner:
        kind, _, its = owner.partition("/")
        meta["ownerReferences"] = [{"kind": kind, "name": its, "uid": f"u-{its}", "controller": True}]
    return {"metadata": meta, "spec": spec or {}, **more}


POD: Json = {"containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "settings"}}]}]}
ENDED: Json = {"conditions": [{"type": "Complete", "status": "True"}]}


@pytest.mark.parametrize(
    ("resource", "found", "told"),
    [
        (PODS, made("p", owner="ReplicaSet/r", spec=POD), ""),
        (PODS, made("p", spec=POD), ""),
        (PODS, made("p", owner="Rollout/r", spec=POD), "Pod 'p' belongs to Rollout 'r'"),
        (PODS, made("p", spec={**POD, "resourceClaims": [{"name": "gpu"}]}), "Pod 'p' is not mirrored: "),
        (DEPLOYMENTS, made("d"), ""),
        (DEPLOYMENTS, made("d", owner="Gadget/g"), "Deployment 'd' belongs to Gadget 'g'"),
        (REPLICA_SETS, made("r", owner="Rollout/r"), "ReplicaSet 'r' belongs to Rollout 'r'"),
        (DAEMON_SETS, made("d"), "DaemonSet 'd' is not supported in a conversion"),
        (ROLE_BINDINGS, made("request-1"), "RoleBinding 'request-1' grants rights on the host"),
        (JOBS, made("j"), "Job 'j' has not ended"),
        (JOBS, made("j", status=ENDED), ""),
        (services.RESOURCE, made("s", spec={"selector": {"app": "a"}}), ""),
        (services.RESOURCE, made("s"), "Service 's' has no selector"),
        (claims.RESOURCE, made("c", spec={"selector": {"matchLabels": {}}, "dataSource": {"name": "x"}}), "Person"),
        (claims.RESOURCE, made("c", owner="StatefulSet/s"), ""),
    ],
)
def test_each_kind_moves_or_refuses(resource: Resource, found: Json, told: str) -> None:
    refusal = plan(scope(), Holdings(of={resource: [found]})).refusal
    assert bool(refusal) is bool(told)
    assert told.replace("Person", "PersistentVolumeClaim 'c' has a selector or a source") in refusal


def test_what_is_not_of_users_stays() -> None:
    of = {
        ROLE_BINDINGS: [made("tenantry-owner"), made("own")],
        CONFIG_MAPS: [made("kube-root-ca.crt"), made("copy", labels={"tenantry.dev/inherited-from": "above"})],
        SECRETS: [
            made("acme-kubeconfig", labels={f"{PREFIX}/control-plane": "acme"}),
            made("token", type="kubernetes.io/service-account-token"),
            made("other-1", labels={f"{PREFIX}/owner": "u-other"}),
        ],
    }
    assert [each.name for each in plan(scope(), Holdings(of=of)).objects] == ["own"]


def test_only_the_names_that_users_cannot_choose_are_reserved() -> None:
    of = {
        SERVICE_ACCOUNTS: [made("default"), made("tenantry-mirror")],
        SECRETS: [made("tenantry-x"), made("acme-kubeconfig")],
        CONFIG_MAPS: [made("tenantry-x")],
    }
    planned = plan(scope(), Holdings(of=of))
    assert [each.name for each in planned.objects] == ["tenantry-mirror", "acme-kubeconfig", "tenantry-x"]
    # The kubeconfig is in another namespace, so users may have a Secret of this name.
    assert planned.refusal == ""


@pytest.mark.parametrize(
    ("account", "told"),
    [("", ""), ("default", ""), ("tenantry-mirror", ""), ("gone", "'gone'")],
)
def test_a_pod_needs_an_account_inside(account: str, told: str) -> None:
    accounts = [made("default"), made("tenantry-mirror")]
    ending = made("gone")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    pods = [made("p", spec={**POD, "serviceAccountName": account})]
    refusal = plan(scope(), Holdings(of={SERVICE_ACCOUNTS: [*accounts, ending], PODS: pods})).refusal
    assert bool(refusal) is bool(told)
    assert told in refusal
    # The operator does not read ServiceAccounts before the namespace is closed.
    assert not plan(scope(), Holdings(of={PODS: pods})).refusal


@pytest.mark.parametrize("resource", [*objects.LOW, *objects.HIGH], ids=lambda each: each.kind)
def test_foreign_finalizers_refuse_workloads(resource: Resource) -> None:
    found = made("w")
    for finalizers, told in (
        (["orphan", "foregroundDeletion"], ""),
        (["example.com/a"], "has finalizers (example.com/a)"),
    ):
        for ending in ({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}):
            found["metadata"] |= {"finalizers": finalizers, **ending}
            refusal = plan(scope(), Holdings(of={resource: [found]})).refusal
            assert bool(refusal) is bool(told)
            assert told in refusal


def test_what_the_mirror_would_not_bring_refuses() -> None:
    profile = Profile(owner_uid="-", namespace="acme", prefix=PREFIX, most_pods=2, most_objects=1)
    of = {
        PODS: [made("p1", spec=POD), made("p2", spec=POD), made("p3", spec=POD)],
        services.RESOURCE: [made("s1", spec={"selector": {"a": "b"}}), made("s2", spec={"selector": {"a": "b"}})],
        SECRETS: [made(f"x{number}") for number in range(3)],
    }
    refused = plan(scope(), Holdings(of=of), (), profile).refused
    assert [each.name for each in refused] == ["s2", "p3"]
    assert "the 2 that a control plane mirrors" in refused[1].reason
    large = made("p", spec=POD)
    large["metadata"]["annotations"] = {"a": "x" * MOST_BYTES}
    assert "256 KiB" in plan(scope(), Holdings(of={PODS: [large]})).refusal


def test_a_suspension_is_ended_first() -> None:
    binding = made("b")
    binding["metadata"]["annotations"] = {SUSPENDED_SUBJECTS: "[]"}
    assert (
        "RoleBinding 'b' does not have its subjects" in plan(scope(), Holdings(of={ROLE_BINDINGS: [binding]})).refusal
    )


def test_objects_are_found_by_kind_and_name() -> None:
    found = Holdings(of={PODS: [made("a"), made("b")], JOBS: [made("a")]})
    assert found.find(PODS, "b") is found.all(PODS)[1]
    assert found.find(JOBS, "a") is found.all(JOBS)[0]
    assert found.find(JOBS, "b") is None


def test_what_ephemeral_containers_name_is_not_kept() -> None:
    pod = made("p", spec={**POD, "ephemeralContainers": [{"name": "e", "envFrom": [{"secretRef": {"name": "s"}}]}]})
    assert objects.named(Holdings(of={PODS: [pod]}), None) == {(CONFIG_MAPS, "settings")}
    assert "ephemeralContainers" in pod["spec"]


def test_what_pods_name_is_adopted_and_the_rest_is_moved() -> None:
    of = {
        CONFIG_MAPS: [made("settings"), made("notes")],
        PODS: [made("p", spec=POD), made("q", owner="Job/j", spec=POD)],
        JOBS: [made("j", status=ENDED)],
        STATEFUL_SETS: [made("s")],
    }
    found = {each.name: each.fate for each in plan(scope(), Holdings(of=of)).objects}
    assert found == {
        "settings": Fate.ADOPTED,
        "notes": Fate.MOVED,
        "p": Fate.ADOPTED,
        "q": Fate.DELETED,
        "j": Fate.DELETED,
        "s": Fate.MOVED,
    }


def test_the_tree_and_the_tenant_can_refuse() -> None:
    children = [
        Subnamespace(metadata=ObjectMeta(name="lab", namespace="acme"), spec=SubnamespaceSpec(mode=Mode.WORKSPACE)),
        Subnamespace(metadata=ObjectMeta(name="shop", namespace="acme"), spec=SubnamespaceSpec(mode=Mode.SUBTENANT)),
    ]
    refused = plan(scope("a" * 41, suspended=True), Holdings(of={}), children).refused
    assert [each.name for each in refused] == ["a" * 41, "a" * 41, "lab"]
    assert "Workspace" in refused[-1].reason


def test_a_copy_has_nothing_of_the_host() -> None:
    pod = made(
        "p",
        owner="ReplicaSet/r",
        spec={**POD, "nodeName": "n", "priority": 7, "priorityClassName": "high", "runtimeClassName": "gvisor"},
    )
    pod["metadata"] |= {"finalizers": ["f"], "annotations": {"note": "a", "tenantry.dev/egress": "x"}}
    pod["metadata"]["labels"] = {"app": "a", f"{PREFIX}/owner": "u"}
    found = objects.upper(PODS, {**pod, "status": {"phase": "Running"}})
    assert found["metadata"] == {
        "name": "p",
        "namespace": "acme",
        "labels": {"app": "a"},
        "annotations": {"note": "a"},
    }
    assert found["spec"] == POD
    assert "status" not in found
    service = objects.upper(services.RESOURCE, made("s", spec={"clusterIP": "10.0.0.1", "selector": {"a": "b"}}))
    assert service["spec"] == {"selector": {"a": "b"}}


def namespace(**labels: str) -> Observed:
    found = {"tenantry.dev/tenant-uid": "u-t", **{f"tenantry.dev/{key}": value for key, value in labels.items()}}
    return Observed("acme", "", "acme", "u-n", 1, found, {}, "", deleting=False, digest=b"", has_subjects=False)


def journal_at(step: ConversionStep) -> Conversion:
    return Conversion(to=ControlPlaneChoice.VIRTUAL, step=step)


def test_a_tenant_is_kept_as_it_is_until_its_conversion_begins() -> None:
    there = namespace()
    assert not controlplane.waits(tenant(), None)
    assert not controlplane.waits(tenant(), namespace(**{"control-plane": "acme"}))
    for status in (UNSET, journal_at(ConversionStep.REFUSED)):
        assert controlplane.name_of(controlplane.effective(tenant(journal=status), there)) == ""
    for step in (ConversionStep.PREPARING, ConversionStep.MOVING, ConversionStep.CONVERTED):
        assert controlplane.name_of(controlplane.effective(tenant(journal=journal_at(step)), there)) == "acme"


def test_a_journal_keeps_its_times_and_clears_its_message() -> None:
    first = journal.at(tenant(), ConversionStep.PREPARING, "starts", "1")
    moving = journal.at(tenant(journal=first), ConversionStep.MOVING, "m", "2")
    again = journal.at(tenant(journal=moving), ConversionStep.MOVING, "n", "3")
    done = journal.at(tenant(journal=again), ConversionStep.CONVERTED, "", "4")
    assert (done.started_at, done.closed_at, done.ended_at, done.message) == ("1", "2", "4", "")
    for step in (ConversionStep.REFUSED, ConversionStep.PREPARING):
        # Writes are allowed again.
        assert journal.at(tenant(journal=moving), step, "r", "3").closed_at == ""
    asked = journal.written(tenant(journal=again), done)
    assert asked is not None
    assert isinstance(asked.body, Tenant)
    assert asked.body.status.conversion == done
    assert journal.written(tenant(journal=done), done) is None


@pytest.mark.parametrize("step", list(ConversionStep))
def test_the_namespace_is_closed_while_objects_move_and_only_then(step: ConversionStep) -> None:
    converted = tenant(journal=journal_at(step))
    assert controlplane.is_converting(converted) is (step is ConversionStep.MOVING)
    closed = namespace(**{"control-plane": "acme", "converting": "true"})
    assert journal.is_closed(converted, closed)
    assert not journal.is_closed(converted, namespace(**{"control-plane": "acme"}))
    assert not journal.is_closed(converted, None)


def test_only_a_conversion_that_has_not_begun_is_undone() -> None:
    for step in ConversionStep:
        asked = tenant(journal=journal_at(step))
        assert not journal.is_undone(asked)
        shared = replace(asked, spec=replace(asked.spec, isolation=Isolation()))
        assert journal.is_undone(shared) is (step in (ConversionStep.REFUSED, ConversionStep.PREPARING))


def test_the_rights_of_a_conversion_are_the_mirrors_alone() -> None:
    leaving = Conversion(to=ControlPlaneChoice.SHARED, step=ConversionStep.MOVING)
    found = (*journal.rights(tenant()), *journal.rights(tenant(journal=leaving)))
    assert [each.role_ref.name for each in found] == ["tenantry-converter", "tenantry-converter", "tenantry-owner"]
    for binding in found:
        assert [(each.kind, each.name, each.namespace) for each in binding.subjects] == [
            ("ServiceAccount", "acme", "tenantry-mirrors")
        ]
        assert not objects.is_movable(ROLE_BINDINGS, made(binding.metadata.name))
