"""What moves from a control plane to the host, and what refuses it (H01): pure."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from tenantry.api import marks
from tenantry.api.controlplanechoice import ControlPlaneChoice
from tenantry.api.conversion import Conversion, ConversionStep
from tenantry.api.model import ObjectMeta, Resource
from tenantry.api.tenant import Isolation, Tenant, TenantSpec, TenantStatus
from tenantry.api.virtualcontrolplane import PLANE, PREFIX
from tenantry.controllers import controlplane
from tenantry.controllers.conversion import journal, moves, objects, outcopies, outmoves, outplan, owned, surroundings
from tenantry.controllers.conversion.moves import Worlds
from tenantry.controllers.conversion.objects import (
    CONFIG_MAPS,
    CRON_JOBS,
    DEPLOYMENTS,
    JOBS,
    REPLICA_SETS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    Holdings,
)
from tenantry.controllers.conversion.plan import Fate
from tenantry.controllers.conversion.scope import ConversionScope
from tenantry.controllers.conversion.surroundings import FoundObject
from tenantry.engine.observed import Observed
from tenantry.mirror import names
from tenantry.mirror.kinds import claims, services
from tenantry.mirror.profile import Profile
from tenantry.mirror.things import PODS

Json = dict[str, Any]
CLAIMS, SERVICES = claims.RESOURCE, services.RESOURCE
OWNER: Json = {"apiVersion": "tenantry.dev/v1alpha1", "kind": "VirtualControlPlane", "name": "acme", "uid": "u-vcp"}
PROFILE = Profile(owner_uid="u-vcp", namespace="acme", prefix=PREFIX, owner=OWNER)
ACME = ConversionScope(owner=Tenant(metadata=ObjectMeta(name="acme", uid="u-t"), spec=TenantSpec(owners=())))
RULES: list[Json] = [{"apiGroups": ["", "apps"], "resources": ["pods", "deployments"], "verbs": ["get", "list"]}]


def made(name: str, *, owner: str = "", labels: Json | None = None, **more: object) -> Json:
    meta: Json = {"name": name, "namespace": "acme", "uid": f"u-{name}", "labels": labels or {"app": name}}
    if owner:
        kind, _, its = owner.partition("/")
        meta["ownerReferences"] = [{"kind": kind, "name": its, "uid": f"u-{its}", "controller": True}]
    return {"metadata": meta, "spec": {}, **more}


def mirrored(resource: Resource, above: Json, *, adopted: bool = False, **more: object) -> Json:
    """The object of the host of one inside."""
    name = above["metadata"]["name"]
    own = name if adopted else names.lower_name("u-vcp", resource.kind, "acme", name)
    notes = {f"{PREFIX}/name": name, f"{PREFIX}/namespace": "acme", f"{PREFIX}/uid": above["metadata"]["uid"]}
    meta: Json = {"name": own, "namespace": "acme", "uid": f"h-{name}", "labels": PROFILE.labels("acme")}
    return {"metadata": {**meta, "annotations": notes, "ownerReferences": [OWNER]}, "spec": {}, **more}


def worlds(inside: dict[Resource, list[Json]], host: dict[Resource, list[Json]] | None = None) -> Worlds:
    return Worlds(host=Holdings(of=host or {}), inside=Holdings(of=inside), has_namespace=True, profile=PROFILE)


def planned(found: Worlds, kind: str) -> list[tuple[str, Fate, str]]:
    plan = outplan.plan(ACME, found, rules=RULES)
    return [(each.name, each.fate, each.reason) for each in plan.objects if each.kind == kind]


@pytest.mark.parametrize(
    ("resource", "found", "why"),
    [
        (ROLE_BINDINGS, {"roleRef": {"kind": "ClusterRole", "name": "system:node"}}, "which tenants may not bind"),
        (ROLE_BINDINGS, {"roleRef": {"kind": "ClusterRole", "name": "tenantry-mirror"}}, "which tenants may not bind"),
        (ROLE_BINDINGS, {"roleRef": {"kind": "Role", "name": "gone"}}, "which does not exist"),
        (ROLE_BINDINGS, {"subjects": [{"kind": "Group", "name": "system:authenticated"}]}, "none of the tenant"),
        (
            ROLE_BINDINGS,
            {"subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "other"}]},
            "none of the tenant",
        ),
        (ROLES, {"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]}, "grants 'get' on 'nodes'"),
        (ROLES, {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}, "grants '*' on '*.*'"),
        (ROLES, {"rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}, "grants paths of the API server"),
        (JOBS, {}, "has not ended"),
        (SERVICES, {}, "has no selector"),
        (CLAIMS, {}, "is not on the host"),
        (PODS, {}, "is not on the host"),
        (DEPLOYMENTS, {}, "has no ReplicaSet of its template yet"),
    ],
)
def test_what_owners_could_not_have_on_the_host_refuses(resource: Resource, found: Json, why: str) -> None:
    [(name, fate, reason)] = planned(worlds({resource: [made("a", **found)]}), resource.kind)
    assert (name, fate) == ("a", Fate.REFUSED)
    assert why in reason


def test_names_of_tenantry_and_of_others_refuse() -> None:
    inside = {CONFIG_MAPS: [made("tenantry-x"), made("there"), made("same", data={"a": "1"})]}
    host = {CONFIG_MAPS: [made("there", data={"a": "1"}), made("same", data={"a": "1"})]}
    assert planned(worlds(inside, host), "ConfigMap") == [
        ("same", Fate.MOVED, ""),
        ("tenantry-x", Fate.REFUSED, "has a name that is Tenantry's on the host: delete it"),
        ("there", Fate.REFUSED, "has the name of another object on the host: delete one of them"),
    ]


def test_the_name_of_a_mirrored_object_refuses() -> None:
    """Otherwise, its content would take the place of what the pods of another object read."""
    first = made("first")
    below = mirrored(CONFIG_MAPS, first)
    forged = made(below["metadata"]["name"])
    found = worlds({CONFIG_MAPS: [first, forged], PODS: [made("p")]}, {CONFIG_MAPS: [below]})
    assert [fate for _, fate, _ in planned(found, "ConfigMap")] == [Fate.MOVED, Fate.REFUSED]
    kubeconfig = made("acme-kubeconfig")
    kubeconfig["metadata"]["ownerReferences"] = [OWNER]
    found = worlds({SECRETS: [made("acme-kubeconfig", type="Opaque")]}, {SECRETS: [kubeconfig]})
    assert [fate for _, fate, _ in planned(found, "Secret")] == [Fate.REFUSED]


def test_a_pod_with_the_name_of_one_of_the_host_refuses() -> None:
    pod = made("p", owner="ReplicaSet/r")
    assert planned(worlds({PODS: [pod]}), "Pod")[0][1] is Fate.MOVED
    assert planned(worlds({PODS: [pod]}, {PODS: [made("p")]}), "Pod")[0][1] is Fate.REFUSED


def test_a_stateful_set_moves_only_with_pods_and_claims_of_its_names() -> None:
    owner = made("s", spec={"selector": {"matchLabels": {"app": "s"}}, "volumeClaimTemplates": []})
    pod = made("s-0", owner="StatefulSet/s", labels={"app": "s"})
    kept = worlds({STATEFUL_SETS: [owner], PODS: [pod]}, {PODS: [mirrored(PODS, pod, adopted=True)]})
    assert planned(kept, "StatefulSet") == [("s", Fate.MOVED, "")]
    other = worlds({STATEFUL_SETS: [owner], PODS: [pod]}, {PODS: [mirrored(PODS, pod)]})
    [(_, fate, reason)] = planned(other, "StatefulSet")
    assert fate is Fate.REFUSED
    assert "Pod 's-0'" in reason
    claim = made("data-s-0")
    owner["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}}]
    found = worlds(
        {STATEFUL_SETS: [owner], PODS: [pod], CLAIMS: [claim]},
        {PODS: [mirrored(PODS, pod, adopted=True)], CLAIMS: [mirrored(CLAIMS, claim)]},
    )
    assert "PersistentVolumeClaim 'data-s-0'" in planned(found, "StatefulSet")[0][2]


def test_a_selector_that_takes_from_another_refuses() -> None:
    greedy = made("greedy", spec={"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}})
    pod = made("p", owner="ReplicaSet/other")
    found = list(owned.overlaps(worlds({REPLICA_SETS: [greedy], PODS: [pod]})))
    assert [(each.name, each.fate) for each in found] == [("greedy", Fate.REFUSED)]
    own = made("p", owner="ReplicaSet/greedy")
    assert not list(owned.overlaps(worlds({REPLICA_SETS: [greedy], PODS: [own]})))
    assert not owned.selects({}, {"app": "p"})


def test_names_that_stay_are_told_and_templates_name_claims_so() -> None:
    service, claim = made("web", spec={"selector": {"app": "web"}, "clusterIP": "10.0.0.1"}), made("disk")
    host = {SERVICES: [mirrored(SERVICES, service)], CLAIMS: [mirrored(CLAIMS, claim)]}
    found = worlds({SERVICES: [service], CLAIMS: [claim]}, host)
    [(_, fate, reason)] = planned(found, "Service")
    assert (fate, "another Service 'web'" in reason) == (Fate.ADOPTED, True)
    renamed = outplan.claim_names(found)
    assert renamed == {"disk": host[CLAIMS][0]["metadata"]["name"]}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "disk"}}]
    job = {"template": {"metadata": {"finalizers": ["x"]}, "spec": {"volumes": volumes}}}
    owned_by: Json = {"ownerReferences": [{"kind": "Tenant", "name": "other", "uid": "u"}]}
    cron = made("c", spec={"jobTemplate": {"metadata": owned_by, "spec": job}})
    copied = outcopies.lower(CRON_JOBS, cron, PROFILE, renamed)
    assert outcopies.claimed(outcopies.template_of(CRON_JOBS, copied)["spec"]) == [renamed["disk"]]
    assert "finalizers" not in str(copied)
    assert "ownerReferences" not in str(copied)
    assert outcopies.claimed(outcopies.template_of(CRON_JOBS, cron)["spec"]) == ["disk"]


@pytest.mark.parametrize("kind", ["LoadBalancer", "NodePort"])
def test_the_second_service_of_a_name_is_not_reached_from_outside(kind: str) -> None:
    ports = [{"port": 80, "nodePort": 30080}]
    found = made("web", spec={"type": kind, "clusterIP": "10.0.0.1", "ports": ports, "externalIPs": ["192.0.2.1"]})
    spec = outcopies.alias(found, PROFILE)["spec"]
    assert spec == {"type": "ClusterIP", "ports": [{"port": 80}]}


def test_files_that_show_the_pod_keep_what_they_show() -> None:
    shown = {"path": "namespace", "fieldRef": {"fieldPath": f"metadata.annotations['{PREFIX}/namespace']"}}
    pod = made("p")
    below = mirrored(PODS, pod, spec={"volumes": [{"name": "v", "downwardAPI": {"items": [shown]}}]})
    found = outmoves.STAGES["pods"](worlds({PODS: [pod]}, {PODS: [below]}))
    [write] = [each for each in found if not isinstance(each, str)]
    assert isinstance(write.request.body, dict)
    assert set(write.request.body["metadata"]["annotations"]) == {f"{PREFIX}/name", f"{PREFIX}/uid"}
    # NetworkPolicies of the mirror select by the label of the same key.
    assert set(write.request.body["metadata"]["labels"]) == {f"{PREFIX}/namespace", f"{PREFIX}/owner"}


BOOTSTRAPPED = {"kubernetes.io/bootstrapping": "rbac-defaults"}


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "labels", "refuses"),
    [
        ("rbac.authorization.k8s.io/clusterroles", "", "view", BOOTSTRAPPED, False),
        ("rbac.authorization.k8s.io/clusterroles", "", "system:mine", {}, True),
        ("rbac.authorization.k8s.io/clusterrolebindings", "", "tenantry:owners", {}, False),
        ("storage.k8s.io/storageclasses", "", "fast", {f"{PREFIX}/lower": "true"}, False),
        ("storage.k8s.io/storageclasses", "", "own", {}, True),
        ("scheduling.k8s.io/priorityclasses", "", "system-node-critical", {}, False),
        ("admissionregistration.k8s.io/validatingwebhookconfigurations", "", "w", {}, True),
        ("apiregistration.k8s.io/apiservices", "", "v1.x", {marks.MANAGED_BY: "tenantry"}, False),
        ("new.k8s.io/futures", "acme", "f", {}, True),
        ("/resourcequotas", "acme", "own", {}, True),
        ("/configmaps", "acme", "a", {}, False),
        ("/configmaps", "default", "a", {}, True),
        ("/configmaps", "shop", "a", {}, False),
        ("/nodes", "", "n", {}, False),
        ("coordination.k8s.io/leases", "acme", "leader", {}, False),
    ],
)
def test_everything_that_kubernetes_or_tenantry_has_not_made_counts(
    kind: str, namespace: str, name: str, labels: Json, *, refuses: bool
) -> None:
    group, _, plural = kind.partition("/")
    resource = Resource(group, "v1", plural, plural, namespaced=bool(namespace))
    found = FoundObject(resource=resource, namespace=namespace, name=name, labels=labels)
    assert bool(surroundings.obstacle(found, "acme")) is refuses


@pytest.mark.parametrize(("place", "refuses"), [("acme", False), ("default", True), ("shop", False)])
def test_only_namespaces_that_each_cluster_has_keep_their_objects(place: str, *, refuses: bool) -> None:
    found = FoundObject(resource=CONFIG_MAPS, namespace=place, name="notes")
    assert bool(surroundings.obstacle(found, "acme")) is refuses
    assert not surroundings.obstacle(FoundObject(resource=objects.NAMESPACES, name=place), "acme")


def test_what_each_namespace_has_does_not_count() -> None:
    inside = {
        SERVICE_ACCOUNTS: [made("default")],
        CONFIG_MAPS: [made("kube-root-ca.crt")],
        SECRETS: [made("t", type="kubernetes.io/service-account-token")],
    }
    assert outplan.plan(ACME, worlds(inside)).objects == ()


def test_the_service_of_the_api_server_ends_with_the_control_plane() -> None:
    """H01: the operator would create it again after each deletion."""
    service = mirrored(SERVICES, made("kubernetes"))
    service["metadata"]["labels"][PLANE] = "acme"
    assert moves.next_moves(worlds({}, {SERVICES: [service]}), outmoves.STAGES).is_done
    other = mirrored(SERVICES, made("gone"))
    assert moves.next_moves(worlds({}, {SERVICES: [other, service]}), outmoves.STAGES).stage == "ends"


# -- the journal ----------------------------------------------------------------------------------


def tenant_at(choice: ControlPlaneChoice, to: ControlPlaneChoice | None = None, step: str = "Refused") -> Tenant:
    conversion = Conversion(to=to, step=ConversionStep(step)) if to is not None else UNSET
    spec = TenantSpec(owners=(), isolation=Isolation(control_plane=choice))
    return Tenant(metadata=ObjectMeta(name="acme", uid="u-t"), spec=spec, status=TenantStatus(conversion=conversion))


def namespace(**labels: str) -> Observed:
    found = {marks.TENANT_UID: "u-t", **labels}
    return Observed("acme", "", "acme", "u-n", 1, found, {}, "", deleting=False, digest=b"", has_subjects=False)


SHARED, VIRTUAL = ControlPlaneChoice.SHARED, ControlPlaneChoice.VIRTUAL
LABELLED = namespace(**{marks.CONTROL_PLANE: "acme"})


@pytest.mark.parametrize(
    ("tenant", "there", "leaves"),
    [
        (tenant_at(SHARED), namespace(), False),
        (tenant_at(SHARED), LABELLED, True),
        (tenant_at(SHARED), None, False),
        (tenant_at(VIRTUAL), LABELLED, False),
        (tenant_at(SHARED, VIRTUAL, "Preparing"), LABELLED, False),
        (tenant_at(SHARED, VIRTUAL, "Converted"), LABELLED, True),
        (tenant_at(SHARED, SHARED, "Refused"), LABELLED, True),
        (tenant_at(SHARED, SHARED, "Moving"), LABELLED, True),
        (tenant_at(SHARED, SHARED, "Converted"), LABELLED, False),
    ],
)
def test_a_tenant_keeps_its_control_plane_until_all_is_on_the_host(
    tenant: Tenant, there: Observed | None, *, leaves: bool
) -> None:
    assert controlplane.leaves(tenant, there) is leaves
    kept = controlplane.effective(tenant, there)
    is_virtual = leaves or tenant.spec.isolation.control_plane is VIRTUAL
    assert controlplane.name_of(kept) == ("acme" if is_virtual else "")


def test_a_tenant_that_has_returned_begins_again_without_its_former_control_plane() -> None:
    asked = tenant_at(VIRTUAL, SHARED, "Converted")
    assert controlplane.waits(asked, LABELLED)
    assert controlplane.name_of(controlplane.effective(asked, LABELLED)) == ""
    begun = journal.at(asked, ConversionStep.PREPARING, "", "1")
    assert (begun.to, begun.started_at, begun.ended_at) == (VIRTUAL, "1", "")


def test_a_return_that_has_not_begun_is_undone() -> None:
    for step in ConversionStep:
        is_early = step in (ConversionStep.REFUSED, ConversionStep.PREPARING)
        assert journal.is_undone(tenant_at(VIRTUAL, SHARED, step)) is is_early
        assert not journal.is_undone(tenant_at(SHARED, SHARED, step))


def test_no_control_plane_is_created_while_objects_leave_it() -> None:
    assert controlplane.is_handed_over(tenant_at(SHARED, SHARED, "Moving"))
    assert not controlplane.is_handed_over(tenant_at(VIRTUAL, VIRTUAL, "Moving"))
    assert not controlplane.is_handed_over(tenant_at(SHARED, SHARED, "Preparing"))
