"""Control planes in Pods with a shared etcd: what is installed, what each Pod gets, and what it reaches (H03)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.errors import InputError, LocalError
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.hostedpods import checks, jobs, objects, seenpods, sharedetcd, sqlservers
from tenantry.hostedpods.objects import PodSettings
from tenantry.hostedpods.podsockets import USUAL
from tenantry.hostedpods.seenpods import SeenPod
from tenantry.hostedpods.sqlservers import ChosenAddress
from tenantry.hostedpods.storeway import StoreWay
from tenantry.hosting import etcdserver, sidecar, stores
from tenantry.hosting import plane as hosting
from tenantry.hosting.plane import HostedPlane
from tenantry.hosting.stores import HostedStore, SqlDriver, SqlServer, StoreKind
from tenantry.install import manifests, planepods, planeproxy, planestore
from tenantry.install.planepods import PodOptions
from tenantry.world.quantity import parse

Json = dict[str, Any]

UID = "0b5f3a52-7d7e-4c3a-9a52-7f6b1b8c9d10"
SETTINGS = PodSettings(image="registry.example/hosted:1")
OPTIONS = PodOptions(image="registry.example/hosted:1", has_etcd=True, storage_class="fast")
WAY = StoreWay(
    socket=stores.ETCD_SOCKET,
    address="10.96.3.4:2379",
    labels=planestore.CLIENTS,
    files={"store-ca.crt": b"a", "store.crt": b"c", "store.key": b"k"},
)
FILES = {"settings.json": b"{}", **WAY.files}
PLANE = HostedPlane(
    uid=UID,
    name="acme.web",
    issuer="https://a-1.example",
    owner="owner:1",
    store=HostedStore(kind=StoreKind.SHARED_ETCD),
)


def made(way: StoreWay | None = WAY) -> Json:
    """Return the template of the Pod of a control plane."""
    return objects.stateful_set(UID, SETTINGS, None, FILES, {}, way=way)["spec"]["template"]


def installed(kind: str, options: PodOptions = OPTIONS) -> list[Json]:
    """Return the objects of one kind that the installation adds to the namespace of control planes."""
    return [each for each in planepods.everything(manifests.SERVICE_ACCOUNT, options) if each["kind"] == kind]


def etcd_pod() -> Json:
    """Return the spec of the Pod of the etcd."""
    (found,) = installed("StatefulSet")
    return found["spec"]["template"]["spec"]


# -- the Pod of a control plane -------------------------------------------------------------------


def test_a_container_without_keys_forwards_the_one_socket() -> None:
    """H03: it has neither the keys of the process nor those of the sidecar."""
    (forwarder,) = [each for each in made()["spec"]["containers"] if each["name"] == "store"]
    assert forwarder["command"] == ["/endpoint-proxy", "datastore", "/sockets/etcd.sock", "10.96.3.4:2379"]
    assert [each["name"] for each in forwarder["volumeMounts"]] == ["sockets"]
    assert forwarder["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_process_reads_the_socket_in_the_folder_that_the_containers_share() -> None:
    """H03: it knows no address of the etcd."""
    found = msgspec.json.decode(hosting.settings(PLANE, 6444, "/openapi", sockets=USUAL.of_process))
    assert found["datastore"]["etcd"]["socket"] == "sockets/etcd.sock"
    assert found["datastore"]["etcd"]["prefix"] == f"/planes/{UID}"
    assert found["datastore"]["maxBytes"] == stores.MAX_BYTES
    assert "10.96" not in str(found["datastore"])


def test_a_pod_whose_objects_are_elsewhere_has_no_volume() -> None:
    """H03: it starts on another node without waiting for a volume."""
    assert [each for each in made()["spec"]["volumes"] if "persistentVolumeClaim" in each] == []
    assert len([each for each in made(None)["spec"]["volumes"] if "persistentVolumeClaim" in each]) == 1
    keys = next(each for each in made()["spec"]["volumes"] if each["name"] == "pki")
    assert {each["key"] for each in keys["secret"]["items"]} == set(WAY.files)


def test_a_snapshot_on_its_way_does_not_evict_the_pod() -> None:
    """H02: kubelet evicts a Pod with a larger volume than its limit."""
    (data,) = [each for each in made()["spec"]["volumes"] if each["name"] == "data"]
    assert parse(data["emptyDir"]["sizeLimit"]) >= 2 * stores.MAX_BYTES


def test_only_control_planes_of_the_etcd_have_its_label() -> None:
    """H03: the NetworkPolicy that opens the way to it goes by this label."""
    assert planestore.CLIENTS.items() <= made()["metadata"]["labels"].items()
    assert not planestore.CLIENTS.keys() & made(None)["metadata"]["labels"].keys()


@pytest.mark.parametrize("address", ["10.96.0.7", "fd00::7"])
def test_addresses_of_both_families_are_written_as_the_forwarder_reads_them(address: str) -> None:
    assert objects.at_port(address, 2379) == ("10.96.0.7:2379" if "." in address else "[fd00::7]:2379")


def test_the_datastore_is_recorded_with_the_keys() -> None:
    """H03: what was started before there was a choice is in SQLite."""
    found = objects.secret(UID, objects.keys_name(UID), {}, StoreKind.SHARED_ETCD)
    assert objects.recorded(found) is StoreKind.SHARED_ETCD
    assert objects.recorded(objects.secret(UID, objects.keys_name(UID), {})) is StoreKind.SQLITE


# -- several Pods ---------------------------------------------------------------------------------


def test_several_pods_share_an_etcd_and_spread_over_nodes() -> None:
    """H12: they need no file of their own, and controllers elect one of them."""
    found = objects.stateful_set(UID, SETTINGS, None, FILES, {}, way=WAY, replicas=3)
    assert found["spec"]["replicas"] == 3
    (spread,) = found["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == {"matchLabels": {objects.UID_LABEL: UID}}
    checks.check(replace(PLANE, replicas=3))
    with pytest.raises(InputError, match="must be 1 unless the datastore is SharedEtcd or External"):
        checks.check(replace(PLANE, replicas=2, store=HostedStore()))
    settings = msgspec.json.decode(hosting.settings(replace(PLANE, replicas=3), 6444, "/openapi"))
    assert settings["datastore"]["processes"] == 3
    assert "--leader-elect=true" in settings["controllers"]


def looked_at(*answers: tuple[float, str]) -> ChosenAddress:
    """Return what is known of the address 192.0.2.1 after answers of DNS, each at a time in seconds."""
    known = ChosenAddress(host="db.example", address="192.0.2.1", looked=0.0)
    for now, found in answers:
        known = known.seen(found.split(), now)
    return known


@pytest.mark.parametrize(
    ("answers", "has_moved"),
    [
        ([(15, "192.0.2.2 192.0.2.1")], False),
        # An hour after the last look, which proves no more than one of a moment ago.
        ([(3600, "192.0.2.2")], False),
        ([(15, "192.0.2.2"), (60, "192.0.2.2")], False),
        ([(15, "192.0.2.2"), (75, "192.0.2.2")], True),
        ([(15, "192.0.2.2"), (30, "192.0.2.1"), (45, "192.0.2.2"), (105, "192.0.2.2")], False),
        ([(15, "192.0.2.2"), (30, "192.0.2.1"), (45, "192.0.2.2"), (645, "192.0.2.3")], True),
    ],
)
def test_a_name_that_alternates_has_not_moved(answers: list[tuple[float, str]], *, has_moved: bool) -> None:
    """H03: a Pod is replaced only if the name of its server leads elsewhere for some time."""
    assert looked_at(*answers).has_moved is has_moved


def test_a_start_keeps_an_address_that_alternates() -> None:
    """H03: otherwise each start would replace the Pod."""
    once, again = looked_at((15, "192.0.2.2")), looked_at((15, "192.0.2.2"), (30, "192.0.2.1"))
    assert (once.is_kept(31), again.is_kept(31), again.is_kept(631)) == (False, True, False)


def test_several_pods_share_a_sql_server() -> None:
    """H12: one NetworkPolicy opens its address to all of them, and each asks it for the writes of the others."""
    server = SqlServer(
        driver=SqlDriver.POSTGRES, address="db.example:5432", database="d", user="u", password="p", ca="c"
    )
    several = replace(PLANE, replicas=2, store=HostedStore(kind=StoreKind.SQL, sql=server))
    checks.check(several)
    way = replace(WAY, labels=sqlservers.client_labels(UID))
    found = objects.stateful_set(UID, SETTINGS, None, FILES, {}, way=way, replicas=2)
    selected = sqlservers.network_policy(UID, "192.0.2.9", 5432)["spec"]["podSelector"]["matchLabels"]
    assert selected.items() <= found["spec"]["template"]["metadata"]["labels"].items()
    settings = msgspec.json.decode(hosting.settings(several, 6444, "/openapi", sockets=USUAL.of_process))
    assert (settings["datastore"]["processes"], settings["datastore"]["sql"]["owner"]) == (2, UID)


def seen(address: str, *, is_ready: bool = True, ends: bool = False) -> SeenPod:
    """Return a Pod at an address."""
    return SeenPod(digest="", address=address, is_ready=is_ready, ends=ends)


@pytest.mark.parametrize(
    ("pods", "known", "moved"),
    [
        ([seen("a")], {"a"}, False),
        ([seen("a", is_ready=False)], {"a"}, False),
        ([seen("a", ends=True)], {"a"}, True),
        (list[SeenPod](), {"a"}, True),
        ([seen("a")], set[str](), True),
        ([seen("a"), seen("b")], {"a", "b"}, False),
        ([seen("a"), seen("b", is_ready=False)], {"a"}, False),
        ([seen("a"), seen("b")], {"a"}, True),
        ([seen("a"), seen("c", is_ready=False)], {"a", "b"}, True),
    ],
)
def test_the_operator_connects_again_when_a_pod_is_lost_or_another_one_is_ready(
    pods: list[SeenPod], known: set[str], *, moved: bool
) -> None:
    """H12: one that is not ready for a moment keeps its connections."""
    assert seenpods.have_moved(pods, known) is moved


# -- SQL servers ----------------------------------------------------------------------------------


SQL_FILES = {"settings.json": b"{}", stores.PASSWORD_FILE: b"secret", "store-ca.crt": b"a"}


def test_the_password_is_in_the_folder_of_the_process_alone() -> None:
    """H03: mounted by its key; the forwarder sees no password."""
    found = objects.stateful_set(UID, SETTINGS, None, SQL_FILES, {}, way=replace(WAY, files=SQL_FILES))
    pod = found["spec"]["template"]["spec"]
    reads = {
        each["name"]: [mount["subPath"] for mount in each["volumeMounts"] if "subPath" in mount]
        for each in pod["containers"]
    }
    assert stores.PASSWORD_FILE in reads["hosted"]
    assert reads["store"] == []
    # It takes snapshots.
    assert reads["sidecar"] == [hosting.SETTINGS, stores.PASSWORD_FILE]
    (keys,) = [each for each in pod["volumes"] if each["name"] == "pki"]
    assert [each["key"] for each in keys["secret"]["items"]] == ["store-ca.crt"]
    # A mount of a key that there is not keeps a Pod from starting.
    others = next(each for each in made()["spec"]["containers"] if each["name"] == "hosted")
    assert stores.PASSWORD_FILE not in str(others)


@pytest.mark.parametrize(
    ("found", "before", "chosen"),
    [
        (["192.0.2.9", "192.0.2.8"], "", "192.0.2.8"),
        (["192.0.2.9", "192.0.2.8"], "192.0.2.9", "192.0.2.9"),
        (["192.0.2.9"], "192.0.2.8", "192.0.2.9"),
        (["2001:db8::1", "192.0.2.9"], "", "192.0.2.9"),
        (["127.0.0.1", "192.0.2.9"], "", "192.0.2.9"),
        (["::ffff:192.0.2.9"], "", "192.0.2.9"),
    ],
)
def test_one_address_of_a_server_is_chosen_and_kept(found: list[str], before: str, chosen: str) -> None:
    """H03: names with several addresses, in any order, do not restart the Pod."""
    assert sqlservers.choose("db.example", found, before, ()) == chosen


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "169.254.169.254", "0.0.0.1", "::1", "fe80::1", "100.100.100.200", "64:ff9b::7f00:1"]
)
def test_no_way_is_opened_to_the_node_or_to_its_metadata(address: str) -> None:
    """H03: a name that changes leads there only if an administrator has named the range, too."""
    with pytest.raises(LocalError, match="has only addresses that are refused"):
        sqlservers.choose("db.example", [address], "", ())
    kept = sqlservers.choose("db.example", [address], "", [f"{address}/{128 if ':' in address else 32}"])
    assert kept == address


def test_one_address_and_port_are_opened_to_the_pod_of_one_control_plane() -> None:
    """H03: no name is resolved in the Pod, and no DNS server is reached."""
    policy = sqlservers.network_policy(UID, "192.0.2.9", 5432)
    assert policy["spec"]["podSelector"] == {"matchLabels": {sqlservers.LABEL: UID}}
    assert policy["spec"]["policyTypes"] == ["Egress"]
    way = {"to": [{"ipBlock": {"cidr": "192.0.2.9/32"}}], "ports": [{"protocol": "TCP", "port": 5432}]}
    assert policy["spec"]["egress"] == [way]
    assert sqlservers.opened(policy) == "192.0.2.9"
    six = sqlservers.network_policy(UID, "2001:db8::1", 5432)
    assert six["spec"]["egress"][0]["to"] == [{"ipBlock": {"cidr": "2001:db8::1/128"}}]
    assert sqlservers.opened({"spec": {}}) == ""


def test_the_job_of_a_restore_reaches_the_server_as_the_process_does() -> None:
    """H02: the NetworkPolicy of the namespace denies all other egress."""
    way = replace(WAY, files=SQL_FILES, labels=sqlservers.client_labels(UID))
    found = objects.stateful_set(UID, SETTINGS, None, SQL_FILES, {}, way=way)
    selector = sqlservers.network_policy(UID, "192.0.2.9", 5432)["spec"]["podSelector"]["matchLabels"]
    for pod in (found["spec"]["template"], jobs.of_data(UID, found, "")["spec"]["template"]):
        assert selector.items() <= pod["metadata"]["labels"].items()


@pytest.mark.parametrize(
    "text", ["192.0.2.9", "::ffff:192.0.2.9", "2001:DB8::0:1", "2001:db8:0:0:0:0:0:1", "2001:db8::1"]
)
def test_another_spelling_of_an_address_is_no_other_server(text: str) -> None:
    """H03: otherwise, the Pod would be replaced again and again."""
    assert sqlservers.choose(text, [text], "", ()) in sqlservers.addresses([text])


# -- the installation -----------------------------------------------------------------------------


def test_the_etcd_is_not_installed_by_default() -> None:
    """H03: it has a volume of 28 GiB, and the other control planes do not need it."""
    plain = PodOptions(image="registry.example/hosted:1")
    assert installed("StatefulSet", plain) == []
    assert "--hosted-etcd" not in planepods.arguments(plain)
    assert "--hosted-etcd" in planepods.arguments(OPTIONS)


def test_the_etcd_has_no_key_in_the_manifests_and_no_privilege() -> None:
    """H03: Pod Security Standard restricted; the operator writes the certificates."""
    found = planepods.everything(manifests.SERVICE_ACCOUNT, OPTIONS)
    assert [each for each in found if each["kind"] == "Secret"] == []
    assert "PRIVATE KEY" not in str(found)
    pod = etcd_pod()
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    assert pod["securityContext"]["runAsNonRoot"] is True
    for each in pod["containers"]:
        context = each["securityContext"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert (context["allowPrivilegeEscalation"], context["readOnlyRootFilesystem"]) == (False, True)


def test_each_container_of_the_etcd_reads_its_own_keys() -> None:
    """H03: the server, which control planes connect to, has neither the administrator's key nor the keeper's."""
    pod = etcd_pod()
    items = {
        each["name"]: {item["key"] for item in each["secret"]["items"]} for each in pod["volumes"] if "secret" in each
    }
    read = {
        each["name"]: {key for mount in each["volumeMounts"] for key in items.get(mount["name"], ())}
        for each in pod["containers"]
    }
    assert read["etcd"] == {"server.crt", "server.key", "etcd-ca.crt"}
    assert {"root.key", "keeper.key"} < read["keeper"]
    assert "server.key" not in read["keeper"]
    assert not {"etcd-ca.key", "keeper-ca.key", "keeper-client.key"} & (read["etcd"] | read["keeper"])


def test_the_etcd_knows_users_by_certificates_and_keeps_within_its_size() -> None:
    """H03: the same flags as on local clusters."""
    (etcd,) = [each for each in etcd_pod()["containers"] if each["name"] == "etcd"]
    assert {"--client-cert-auth", "--enable-grpc-gateway=false", "--auto-compaction-retention=5m"} < set(
        etcd["command"]
    )
    assert f"--quota-backend-bytes={etcdserver.SHARED_BYTES}" in etcd["command"]
    (claim,) = installed("StatefulSet")[0]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    gib = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))
    # The file, a copy, and what replaces one of them.
    assert gib * 2**30 > 3 * etcdserver.SHARED_BYTES


def test_only_control_planes_of_the_etcd_reach_it_and_nothing_else() -> None:
    """H03: one label, one port; the keeper is for the operator."""
    policies = {each["metadata"]["name"]: each["spec"] for each in installed("NetworkPolicy")}
    everyone = policies.pop(planepods.NAME)
    proxy = policies.pop(planeproxy.NAME)
    assert "2379" not in str(proxy)
    assert (everyone["podSelector"], everyone["egress"]) == ({}, [])
    clients = policies.pop("hosted-etcd-clients")
    assert clients["podSelector"]["matchLabels"] == planestore.CLIENTS
    assert clients["policyTypes"] == ["Egress"]
    to_etcd = {
        "to": [{"podSelector": {"matchLabels": planestore.SELECTOR}}],
        "ports": [{"protocol": "TCP", "port": 2379}],
    }
    assert clients["egress"] == [to_etcd]
    etcd = policies.pop(planestore.NAME)
    assert etcd["podSelector"]["matchLabels"] == planestore.SELECTOR
    peers = {rule["ports"][0]["port"]: rule.get("from") for rule in etcd["ingress"]}
    assert peers[2379] == [{"podSelector": {"matchLabels": planestore.CLIENTS}}]
    assert peers[planestore.KEEPER_PORT][0]["podSelector"]["matchLabels"] == {"app.kubernetes.io/component": "operator"}
    assert policies == {}
    # The policy of the whole namespace opens ports of control planes only.
    opened = {port["port"] for rule in everyone["ingress"] for port in rule["ports"]}
    assert opened == {sidecar.API_PORT, sidecar.TUNNEL_PORT, sidecar.KEEPER_PORT}
    assert not opened & {planestore.CLIENT_PORT, planestore.KEEPER_PORT, planestore.PROBE_PORT}


def test_the_keeper_has_an_authority_of_its_own() -> None:
    """H03: no certificate of a control plane opens it."""
    found = sharedetcd.leaves()
    assert found[planestore.KEEPER].ca == found[planestore.KEEPER_CLIENT].ca == planestore.KEEPER_AUTHORITY
    assert stores.client_leaf(UID).ca == found["root"].ca == "etcd-ca"
    assert {name for name, leaf in found.items() if leaf.ca == planestore.KEEPER_AUTHORITY} == {
        planestore.KEEPER,
        planestore.KEEPER_CLIENT,
    }


def test_the_operator_gets_no_further_rights_for_the_etcd() -> None:
    plain = PodOptions(image="registry.example/hosted:1")
    assert installed("Role") == installed("Role", plain)
    assert {each["metadata"]["namespace"] for each in installed("StatefulSet")} == {PROCESS_NAMESPACE}
