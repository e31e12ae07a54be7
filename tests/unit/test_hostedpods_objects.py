"""The objects of control planes in Pods, and what `tenantry install --virtual-control-planes` adds."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from tenantry.api.errors import InputError
from tenantry.api.peercluster import PEERS_NAMESPACE
from tenantry.api.planehosting import PlaneHosting
from tenantry.api.virtualcontrolplane import MIRROR, MIRRORS_NAMESPACE, PROCESS_NAMESPACE
from tenantry.cli.install import install
from tenantry.hostedpods import auditlogs, checks, jobs, objects, ownetcd, proxyports, seenpods
from tenantry.hostedpods.objects import PodSettings
from tenantry.hostedpods.podsockets import PodSockets
from tenantry.hostedpods.storeway import StoreWay
from tenantry.hosting import plane as hosting
from tenantry.hosting import sidecar
from tenantry.hosting.plane import HostedLimits, HostedPlane
from tenantry.hosting.stores import HostedStore, StoreKind
from tenantry.install import manifests, planepods, planeproxy
from tenantry.install.peers import PEERING
from tenantry.install.planepods import PodOptions
from tenantry.local.hostedprocess import check_process

Json = dict[str, Any]

UID = "0b5f3a52-7d7e-4c3a-9a52-7f6b1b8c9d10"
SETTINGS = PodSettings(image="registry.example/hosted:1")
FILES = {"settings.json": b"{}", "egress.json": b"{}", "kube-controller-manager.kubeconfig": b"", "ca.crt": b"c"}
LIMITS = HostedLimits(memory_bytes=268435456, cpu_millis=50)


def made(files: dict[str, bytes] = FILES, own: bytes = b"s") -> Json:
    return objects.stateful_set(UID, SETTINGS, LIMITS, files, {"tls.key": own})


def pod() -> Json:
    return made()["spec"]["template"]["spec"]


def test_the_pod_has_no_credential_of_the_host_and_no_privilege() -> None:
    """H01: Pod Security Standard restricted, and less."""
    found = pod()
    assert (found["automountServiceAccountToken"], found["enableServiceLinks"]) == (False, False)
    assert found["securityContext"]["runAsNonRoot"] is True
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in found["containers"]:
        context = each["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)
    assert {kind for volume in found["volumes"] for kind in volume if kind != "name"} == {
        "secret",
        "emptyDir",
        "persistentVolumeClaim",
    }


def test_a_control_plane_in_a_sandbox_has_its_runtime_class() -> None:
    """H04: its Pod, and no other; another RuntimeClass replaces the Pod."""
    assert "runtimeClassName" not in pod()
    settings = replace(SETTINGS, runtime_class="gvisor")
    found = objects.stateful_set(UID, settings, LIMITS, FILES, {"tls.key": b"s"})
    assert found["spec"]["template"]["spec"]["runtimeClassName"] == "gvisor"
    assert objects.digest_of(found) != objects.digest_of(made())


def test_containers_in_a_sandbox_meet_in_the_shared_memory_of_the_pod() -> None:
    """H04: gVisor shows a socket in an emptyDir to no other container."""
    etcd = ownetcd.containers(UID, SETTINGS.image, PodSockets(is_sandboxed=True))
    way = StoreWay(socket="etcd.sock", containers=etcd, volumes=ownetcd.volumes(UID), files={})
    settings = replace(SETTINGS, runtime_class="gvisor")
    found = objects.stateful_set(UID, settings, LIMITS, FILES, {}, way=way)["spec"]["template"]["spec"]
    assert "sockets" not in str(found).replace("-sockets=/dev/shm", "")
    containers = {each["name"]: each["command"] for each in (*found["containers"], *found["initContainers"])}
    assert "-sockets=/dev/shm" in containers["sidecar"]
    assert "--listen-client-urls=unixs:///dev/shm/etcd.sock" in containers["etcd"]
    far = replace(way, address="192.0.2.1:5432", containers=(), volumes=())
    found = objects.stateful_set(UID, settings, LIMITS, FILES, {}, way=far)["spec"]["template"]["spec"]
    assert found["containers"][0]["command"][2] == "/dev/shm/etcd.sock"  # noqa: S108 - of the Pod


def test_the_jobs_of_a_control_plane_in_a_sandbox_are_in_it() -> None:
    """H04: they read what its users have written."""
    found = objects.stateful_set(UID, replace(SETTINGS, runtime_class="gvisor"), LIMITS, FILES, {})
    for each, wanted in ((found, "gvisor"), (made(), None)):
        assert jobs.of_data(UID, each, "")["spec"]["template"]["spec"].get("runtimeClassName") == wanted


def test_a_pod_is_not_started_on_a_host_that_its_spec_does_not_admit() -> None:
    """H04: the message says what to do."""
    plane = HostedPlane(uid=UID, name="acme.prod", issuer="https://x", owner="o")
    with pytest.raises(InputError, match=r"spec.hosting is Machine"):
        checks.check(replace(plane, hosting=PlaneHosting.MACHINE))
    checks.check(replace(plane, hosting=PlaneHosting.PODS))


@pytest.mark.parametrize(
    ("kind", "runtime_class", "told"),
    [
        (StoreKind.SQLITE, "gvisor", "create another control plane with the datastore OwnEtcd, SharedEtcd or External"),
        (StoreKind.SQLITE, "", "create another control plane with the datastore OwnEtcd, SharedEtcd or External"),
        (StoreKind.OWN_ETCD, "", "no RuntimeClass of a sandbox: install gVisor or Kata Containers with one"),
        (StoreKind.SHARED_ETCD, "", "or set spec.runtime to Shared, also in the ClusterTemplate"),
        (StoreKind.OWN_ETCD, "gvisor", ""),
        (StoreKind.SHARED_ETCD, "gvisor", ""),
        (StoreKind.SQL, "gvisor", ""),
    ],
)
def test_a_sandbox_needs_its_class_and_a_datastore_behind_a_socket(
    kind: StoreKind, runtime_class: str, told: str
) -> None:
    """H04: one that is not there would be believed, and SQLite would lose what it has written."""
    plane = HostedPlane(uid=UID, name="acme.prod", issuer="https://x", owner="o", store=HostedStore(kind=kind))
    with pytest.raises(InputError, match=told) if told else nullcontext():
        checks.check(replace(plane, is_sandboxed=True, runtime_class=runtime_class))
    checks.check(plane)


def test_the_class_of_a_control_plane_that_runs_is_found_again() -> None:
    """H04: a RuntimeClass that is deleted does not end what runs in it, also when the operator starts again."""
    found = objects.stateful_set(UID, replace(SETTINGS, runtime_class="gvisor"), LIMITS, FILES, {})
    assert [objects.runtime_class_of(each) for each in (found, made(), None)] == ["gvisor", "", ""]


@pytest.mark.parametrize("change", [{"hosting": PlaneHosting.PODS}, {"is_sandboxed": True, "runtime_class": "gvisor"}])
def test_no_process_of_a_machine_takes_the_place_of_a_pod(change: Json) -> None:
    """H04: a sandbox that is not there would be believed."""
    plane = HostedPlane(uid=UID, name="acme.prod", issuer="https://x", owner="o", hosting=PlaneHosting.MACHINE)
    check_process(plane)
    with pytest.raises(InputError, match="as processes"):
        check_process(replace(plane, **change))


def test_the_process_does_not_get_the_keys_of_the_tunnel() -> None:
    """H01: a process that its users have taken over must not speak as its sidecar, nor as the operator."""
    volumes = {each["name"]: each.get("secret", {}).get("secretName") for each in pod()["volumes"]}
    secrets = {
        each["name"]: {volumes[mount["name"]] for mount in each["volumeMounts"]} - {None}
        for each in pod()["containers"]
    }
    assert secrets == {"hosted": {objects.name(UID)}, "sidecar": {objects.sidecar_name(UID), objects.name(UID)}}
    (sidecars,) = [each for each in pod()["containers"] if each["name"] == "sidecar"]
    files = [each.get("subPath") for each in sidecars["volumeMounts"] if each["name"] in {"files", "pki"}]
    assert files == ["settings.json"]
    assert objects.keys_name(UID) not in str(made())


def test_a_changed_certificate_replaces_the_pod() -> None:
    """H02: files that are mounted by subPath do not change in a running Pod."""
    assert objects.digest_of(made()) == objects.digest_of(made())
    changed = [made({**FILES, "settings.json": b"{ }"}), made({**FILES, "ca.crt": b"d"}), made(own=b"t")]
    assert len({objects.digest_of(each) for each in [made(), *changed]}) == 4


def test_the_process_stays_within_its_limits() -> None:
    """H01: what the quota is charged for is what the node reserves."""
    hosted = next(each for each in pod()["containers"] if each["name"] == "hosted")
    assert hosted["resources"]["limits"] == {"memory": "268435456"}
    assert hosted["resources"]["requests"] == {"memory": "268435456", "cpu": "50m"}
    assert {"name": "GOMEMLIMIT", "value": "214748364"} in hosted["env"]


@pytest.mark.parametrize(
    ("service", "address"),
    [
        ({"spec": {"type": "ClusterIP", "clusterIP": "10.96.0.7"}}, "10.96.0.7"),
        ({"spec": {"type": "LoadBalancer", "clusterIP": "10.96.0.7"}, "status": {"loadBalancer": {}}}, ""),
        (
            {"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}},
            "192.0.2.7",
        ),
        (
            {"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"hostname": "a.example"}]}}},
            "a.example",
        ),
    ],
)
def test_users_reach_the_service_at_its_address(service: Json, address: str) -> None:
    assert objects.address(service) == address


def test_a_pod_that_does_not_start_says_why() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    status = {"containerStatuses": [{"name": "hosted", "state": waiting}]}
    assert seenpods.seen({"status": status}).problem == "container hosted: ImagePullBackOff: not found"
    held = {"waiting": {"reason": "PodInitializing"}}
    first = {"initContainerStatuses": [{"name": "audit", "state": waiting}], "containerStatuses": [{"state": held}]}
    assert seenpods.seen({"status": first}).problem == "container audit: ImagePullBackOff: not found"
    conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes"}]
    assert seenpods.seen({"status": {"conditions": conditions}}).problem == "Unschedulable: no nodes"


def test_a_pod_that_ends_is_not_ready() -> None:
    conditions = [{"type": "Ready", "status": "True"}]
    meta = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    found = seenpods.seen({"metadata": meta, "status": {"conditions": conditions}})
    assert (found.is_ready, found.ends) == (False, True)


# -- the installation ---------------------------------------------------------------------------


def test_nothing_is_added_by_default() -> None:
    """H01: an installation without the flag has neither the namespace nor the rights."""
    assert PROCESS_NAMESPACE not in str(manifests.everything())


def test_the_operator_gets_rights_in_one_namespace_only() -> None:
    """H01: no cluster role more, no list of Secrets, no way to a node."""
    plain = manifests.everything()
    extended = manifests.everything(pods=PodOptions(image="registry.example/hosted:1"))
    added = [each for each in extended if each not in plain]
    kinds = ["Deployment", "Deployment", "Namespace", "NetworkPolicy", "NetworkPolicy", "Role", "RoleBinding"]
    assert sorted(each["kind"] for each in added) == kinds
    (role,) = [each for each in added if each["kind"] == "Role"]
    assert role["metadata"]["namespace"] == PROCESS_NAMESPACE
    secrets = [each for each in role["rules"] if "secrets" in each["resources"]]
    assert not {verb for each in secrets for verb in each["verbs"]} & {"list", "watch", "*", "deletecollection"}


def test_mirrors_have_rights_by_role_bindings_only() -> None:
    """H01: no nodes/proxy, no impersonation, and no ClusterRoleBinding of the mirrors' role."""
    found = manifests.everything(pods=PodOptions(image="registry.example/hosted:1"))
    roles = [each for each in found if each["kind"] in {"ClusterRole", "Role"}]
    rules = [rule for each in roles for rule in each.get("rules") or ()]
    granted = {(kind, verb) for rule in rules for kind in rule.get("resources", ()) for verb in rule["verbs"]}
    assert not [each for each in granted if each[0] == "nodes/proxy" or each[1] == "impersonate"]
    bound = [each for each in found if each["kind"] == "ClusterRoleBinding"]
    assert MIRROR not in {each["roleRef"]["name"] for each in bound}


def test_tokens_are_requested_in_namespaces_of_tenantry_and_no_policy_trusts_accounts_of_tenants() -> None:
    """H01: owners may impersonate each ServiceAccount of their namespaces."""
    found = manifests.everything(pods=PodOptions(image="registry.example/hosted:1"))
    gives = [
        each["metadata"]
        for each in found
        for rule in each.get("rules") or ()
        if "serviceaccounts/token" in rule.get("resources", ())
    ]
    own = [(MIRRORS_NAMESPACE, MIRROR), (PEERS_NAMESPACE, PEERING)]
    assert [(each.get("namespace"), each["name"]) for each in gives] == own
    policies = [each for each in found if each["kind"].endswith("AdmissionPolicy")]
    assert any(f":{MIRRORS_NAMESPACE}:" in str(each) for each in policies)
    assert not [each for each in policies if "'system:serviceaccount:' + request.namespace" in str(each)]


def test_pods_open_no_connection_and_only_the_operator_and_the_proxy_reach_them() -> None:
    """H01: an API server that its users have taken over reaches no address, and no user passes the proxy."""
    spec = policy(planepods.NAME)
    assert (spec["podSelector"], spec["egress"]) == ({}, [])
    assert set(spec["policyTypes"]) == {"Ingress", "Egress"}
    clients, operator = spec["ingress"]
    assert clients["from"] == [{"podSelector": {"matchLabels": planeproxy.SELECTOR}}]
    assert [each["port"] for each in clients["ports"]] == [sidecar.API_PORT]
    assert "namespaceSelector" in operator["from"][0]
    assert {each["port"] for each in operator["ports"]} == {
        *(sidecar.API_PORT, sidecar.TUNNEL_PORT, sidecar.KEEPER_PORT)
    }


def policy(name: str) -> Json:
    """Return the spec of a NetworkPolicy of the installation."""
    found = planepods.everything(manifests.SERVICE_ACCOUNT, PodOptions(image="registry.example/hosted:1"))
    policies = [each for each in found if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == name]
    return policies[0]["spec"]


def test_the_proxy_reaches_control_planes_only_and_no_pod_reaches_its_channel_of_operators() -> None:
    """H01: a client that takes the proxy over gets to no other address, and none gets past its ports."""
    spec = policy(planeproxy.NAME)
    assert spec["podSelector"] == {"matchLabels": planeproxy.SELECTOR}
    (way,) = spec["egress"]
    assert way["to"] == [{"podSelector": {"matchExpressions": [{"key": objects.UID_LABEL, "operator": "Exists"}]}}]
    assert [each["port"] for each in way["ports"]] == [sidecar.API_PORT]
    clients, control = spec["ingress"]
    assert "from" not in clients
    first, last = clients["ports"][0]["port"], clients["ports"][0]["endPort"]
    own = (planeproxy.CONTROL_PORT, planeproxy.PROBE_PORT, sidecar.API_PORT, sidecar.TUNNEL_PORT)
    assert not [each for each in own if first <= each <= last]
    assert (list(control["from"][0]), control["ports"][0]["port"]) == (
        ["namespaceSelector", "podSelector"],
        planeproxy.CONTROL_PORT,
    )


def test_the_proxy_has_no_credential_of_the_host_and_no_privilege() -> None:
    """H01: Pod Security Standard restricted; it mounts its own keys and nothing of a control plane."""
    found = planepods.everything(manifests.SERVICE_ACCOUNT, PodOptions(image="registry.example/hosted:1"))
    (proxy,) = [each for each in found if each["kind"] == "Deployment"]
    spec = proxy["spec"]["template"]["spec"]
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert [each["secret"]["secretName"] for each in spec["volumes"]] == [planeproxy.NAME]
    (container,) = spec["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert (container["image"], container["command"][0]) == ("registry.example/hosted:1", objects.FORWARDER)


def test_the_service_of_a_control_plane_leads_to_its_port_at_the_proxy() -> None:
    """H01: no Service leads around the proxy, which refuses clients of a suspended tenant."""
    plane = HostedPlane(uid=UID, name="acme.web", issuer="https://i.example", owner="o")
    found = objects.service(UID, SETTINGS, plane, 20007)
    assert found["spec"]["selector"] == planeproxy.SELECTOR
    assert [each["targetPort"] for each in found["spec"]["ports"]] == [20007]
    assert objects.called(found) == "acme.web"
    assert objects.url({**found, "spec": {**found["spec"], "clusterIP": "10.96.0.9"}}) == "https://10.96.0.9"
    named = replace(plane, host="prod.acme.example", port=8443)
    assert objects.url(objects.service(UID, SETTINGS, named, 20007)) == "https://prod.acme.example:8443"
    joined = objects.service(UID, SETTINGS, named, 20007, 20008)
    assert objects.url(joined) == "https://prod.acme.example:8443"
    assert objects.url_of_nodes(joined) == "https://prod.acme.example:6444"
    assert objects.ip_of_nodes(joined) == ""
    assert [each["targetPort"] for each in joined["spec"]["ports"]] == [20007, 20008]
    given = {**joined, "spec": {**joined["spec"], "clusterIP": "fd00::1"}}
    assert objects.ip_of_nodes(given) == "fd00::1"
    assert "prod.acme.example" in hosting.leaves(named)["server"].names


def test_each_control_plane_has_a_port_of_its_own_until_none_is_left() -> None:
    """H01: two with one port would get each other's clients."""
    taken: set[int] = set()
    for number in range(200):
        port = proxyports.free(f"uid-{number}", taken)
        assert port is not None
        assert port not in taken
        taken.add(port)
    every = range(planeproxy.FIRST_PORT, planeproxy.LAST_PORT + 1)
    assert taken <= set(every)
    last = proxyports.free("uid-0", [each for each in every if each != 20123])
    assert (last, proxyports.free("uid-0", every)) == (20123, None)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--virtual-control-planes"], "needs --hosted-image"),
        (["--virtual-control-planes", "--hosted-image", "a b"], "must be IMAGE or VERSION=IMAGE"),
        (["--hosted-image", "registry.example/hosted:1"], "need --virtual-control-planes"),
        (["--hosted-storage-class", "fast"], "need --virtual-control-planes"),
        (["--hosted-etcd"], "need --virtual-control-planes"),
    ],
)
def test_flags_that_do_not_fit_are_refused(arguments: list[str], problem: str) -> None:
    done = CliRunner().invoke(install, ["--dry-run", *arguments])
    assert isinstance(done.exception, InputError)
    assert problem in str(done.exception)


def test_the_operator_is_started_with_the_flags() -> None:
    options = PodOptions(image="registry.example/hosted:1", storage_class="fast", service_type="LoadBalancer")
    (operator,) = [each for each in manifests.workload("tenantry:1", options) if each["kind"] == "Deployment"]
    arguments = operator["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[7:] == [
        *("--hosted-image", "registry.example/hosted:1", "--hosted-service", "LoadBalancer"),
        *("--hosted-scratch", planepods.SCRATCH),
        *("--hosted-storage-class", "fast"),
    ]


def test_a_container_prints_the_audit_log() -> None:
    """H01: it reads the folder of the log alone, which the process writes, and which the next Pod begins anew.

    kubelet starts it before the process, and ends it after that.
    """
    plain, audited = (
        objects.stateful_set(UID, SETTINGS, LIMITS, FILES, {}, has_audit_log=each)["spec"]["template"]["spec"]
        for each in (False, True)
    )
    for spec in (plain, audited):
        assert [each["name"] for each in spec["containers"]] == ["hosted", "sidecar"]
    assert "initContainers" not in plain
    process, (printing,) = audited["containers"][0], audited["initContainers"]
    assert printing["restartPolicy"] == "Always"
    mount = {"name": "audit", "mountPath": "/plane/audit"}
    assert mount in process["volumeMounts"]
    assert printing["command"] == ["/hosted-sidecar", "-audit=/plane/audit/audit.log"]
    assert printing["volumeMounts"] == [{**mount, "readOnly": True}]
    assert {"name": "audit", "emptyDir": {"sizeLimit": "70Mi"}} in audited["volumes"]
    assert (printing["image"], printing["securityContext"]) == (process["image"], process["securityContext"])


def test_the_audit_log_is_read_from_the_pods_that_print_it() -> None:
    """H02: also while Pods of a former template, or those without an audit log, are there."""
    plain, audited = (
        objects.stateful_set(UID, SETTINGS, LIMITS, FILES, {}, has_audit_log=each)["spec"]["template"]
        for each in (False, True)
    )
    templates = {"b": audited, "c": plain, "a": audited}
    pods = [{**template, "metadata": {"name": name}} for name, template in templates.items()]
    assert auditlogs.printing(pods) == ["a", "b"]


def test_a_range_of_pods_is_refused_before_the_first_start() -> None:
    """H04: a field that Pods do not carry out must not look accepted."""
    plane = HostedPlane(uid="a-1", name="x", issuer="https://x", owner="o")
    checks.check_first(plane)
    with pytest.raises(InputError, match=r"spec.network.podRange .* without the field"):
        checks.check_first(replace(plane, pod_range="10.64.0.0/16"))
