"""The shared cluster is what it says: its version, its identities, its sockets, its files, its nodes."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import ssl
import stat
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tenantry.api.errors import Forbidden, ServerError, Unauthorized
from tenantry.api.node import Node
from tenantry.kube import kubeconfig
from tenantry.kube.client import Client
from tenantry.local import bootstrap, components, nodes, pki
from tenantry.local.cluster import LocalCluster, UpOptions
from tenantry.local.state import Phase
from testkit.api import SECONDS, until

LISTEN = "0A"  # proc_net(5): TCP_LISTEN


async def test_the_version_is_the_one_that_was_built(cluster: LocalCluster, admin: Client) -> None:
    """A real Kubernetes (B02, in part)."""
    assert b"v1.36.3" in await admin.request("GET", "/version")
    done = cluster.kubectl("version")
    assert "Server Version: v1.36.3" in done.stdout
    assert "Client Version: v1.36.3" in done.stdout


@pytest.mark.parametrize(
    ("identity", "user", "group"),
    [
        ("admin", "admin", "system:masters"),
        ("operator", pki.OPERATOR_USER, pki.OPERATOR_GROUP),
        ("kwok", pki.KWOK_USER, ""),
        ("kube-scheduler", "system:kube-scheduler", ""),
    ],
)
async def test_identities(cluster: LocalCluster, identity: str, user: str, group: str) -> None:
    """Each component has its own identity (DESIGN, section 2)."""
    review = msgspec.json.encode({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"})
    async with Client(kubeconfig.load([cluster.paths.kubeconfig(identity)])) as client:
        answer = await client.request("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", body=review)
    found = msgspec.json.decode(answer)["status"]["userInfo"]
    assert found["username"] == user
    assert set(found["groups"]) == {group, "system:authenticated"} - {""}


async def test_the_operator_is_no_master(cluster: LocalCluster) -> None:
    async with Client(kubeconfig.load([cluster.paths.kubeconfig("operator")])) as client:
        with pytest.raises(Forbidden):
            await client.request("GET", "/api/v1/secrets")


async def test_the_anonymous_see_health_and_nothing_else(cluster: LocalCluster) -> None:
    connection = kubeconfig.load([cluster.kubeconfig_path])
    anonymous = msgspec.structs.replace(connection, certificate=None, key=None)
    async with Client(anonymous) as client:

        async def is_ready() -> bool:
            # It is not while etcd takes seconds for an answer.
            with contextlib.suppress(ServerError):
                return await client.request("GET", "/readyz") == b"ok"
            return False

        await until(is_ready, "the API server is ready")
        for path in ("/version", "/api/v1/namespaces", "/openapi/v2"):
            with pytest.raises(Unauthorized):
                await client.request("GET", path)


async def test_a_client_certificate_is_signed_and_works(cluster: LocalCluster, admin: Client) -> None:
    """`tenantry kubeconfig --user` needs the cluster's signer."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ada")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    body = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "ada"},
        "spec": {
            "request": base64.b64encode(request.public_bytes(Encoding.PEM)).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "expirationSeconds": 600,
            "usages": ["client auth"],
        },
    }
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    await admin.request("POST", path, body=msgspec.json.encode(body))
    assert cluster.kubectl("certificate", "approve", "ada").returncode == 0
    done = cluster.kubectl(
        "wait", "csr/ada", "--for=jsonpath={.status.certificate}", "--timeout=110s", timeout_seconds=SECONDS
    )
    assert done.returncode == 0, done.stderr
    signed = msgspec.json.decode(await admin.request("GET", f"{path}/ada"))["status"]["certificate"]
    await admin.request("DELETE", f"{path}/ada")
    private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    connection = kubeconfig.load([cluster.kubeconfig_path])
    as_ada = msgspec.structs.replace(connection, certificate=base64.b64decode(signed), key=private)
    async with Client(as_ada) as client:
        with pytest.raises(Forbidden, match='User "ada" cannot list'):
            await client.request("GET", "/api/v1/secrets")


async def test_etcd_answers_only_clients_with_its_own_certificate(cluster: LocalCluster) -> None:
    folder = cluster.paths.pki
    context = ssl.create_default_context(cafile=folder / "etcd-ca.crt")
    # TLS 1.2 refuses in the handshake; 1.3 would only tell at the first read.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(folder / "admin.crt", folder / "admin.key")
    with pytest.raises(ssl.SSLError):
        await asyncio.open_connection("127.0.0.1", cluster.spec().ports.etcd, ssl=context)


def listening(pids: set[int]) -> set[tuple[str, int]]:
    """Return the local addresses (hexadecimal, as in /proc/net/tcp) and ports on which processes listen."""
    inodes: set[str] = set()
    for link in (link for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir()):
        # A descriptor may be closed at any moment; those that listen stay.
        with contextlib.suppress(FileNotFoundError):
            inodes.add(link.readlink().name.removeprefix("socket:[").removesuffix("]"))
    found: set[tuple[str, int]] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and fields[9] in inodes:
                address, _, port = fields[1].partition(":")
                found.add((address, int(port, 16)))
    return found


async def test_only_loopback_listens_and_only_below_the_ephemeral_ports(cluster: LocalCluster) -> None:
    state = await cluster.wait_ready()
    found = listening({each.pid for each in state.components if each.pid} | {state.supervisor_pid})
    assert {address for address, _ in found} == {"0100007F"}
    reserved = set(msgspec.structs.astuple(cluster.spec().ports))
    assert {port for _, port in found} <= reserved
    assert max(reserved) < 32768


async def test_files_are_only_the_owners(cluster: LocalCluster) -> None:
    looked_at = 0
    for folder, _, files in os.walk(cluster.paths.folder):
        for path in (Path(folder), *(Path(folder, file) for file in files)):
            # etcd and the supervisor write files under another name first.
            with contextlib.suppress(FileNotFoundError):
                mode = path.lstat().st_mode
                assert not mode & 0o077, f"{path} is {stat.filemode(mode)}"
                looked_at += 1
    assert looked_at > len(list(cluster.paths.pki.iterdir()))


async def test_kubectl_passes_its_exit_code(cluster: LocalCluster) -> None:
    assert cluster.kubectl("get", "namespace", "default").returncode == 0
    failed = cluster.kubectl("get", "namespace", "nowhere")
    assert failed.returncode == 1
    assert '"nowhere" not found' in failed.stderr


async def test_nodes_become_ready_scale_and_go(cluster: LocalCluster, admin: Client) -> None:
    """Simulated nodes: capacity, labels and zones as asked for; a pod runs there."""
    plan = nodes.plan_from_flags(3, cpu="2", labels=("disk=ssd",), zones="a,b")
    await cluster.up(UpOptions(nodes=plan, timeout_seconds=2 * SECONDS))
    found = await admin.list(Node)
    assert [node.metadata.name for node in found] == ["node-1", "node-2", "node-3"]
    assert all(node.is_ready for node in found)
    assert {node.status.allocatable["cpu"] for node in found} == {"2"}
    assert [node.metadata.labels[nodes.ZONE] for node in found] == ["a", "b", "a"]

    # The controller manager makes it in its own time, and without it there is no pod.
    done = cluster.kubectl("wait", "serviceaccount/default", "--for=create", "--timeout=110s", timeout_seconds=SECONDS)
    assert done.returncode == 0, done.stderr
    done = cluster.kubectl("run", "web", "--image=web", "--overrides={}")
    assert done.returncode == 0, done.stderr
    done = cluster.kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=110s", timeout_seconds=SECONDS)
    assert done.returncode == 0, done.stderr
    cluster.kubectl("delete", "pod", "web", "--now")

    uids = {node.metadata.name: node.metadata.uid for node in found}
    await cluster.up(
        UpOptions(
            nodes=nodes.plan_from_flags(2, cpu="2", labels=("disk=ssd",), zones="a,b"), timeout_seconds=2 * SECONDS
        )
    )
    fewer = await admin.list(Node)
    assert {node.metadata.name: node.metadata.uid for node in fewer} == {
        name: uid for name, uid in uids.items() if name != "node-3"
    }
    await cluster.up(UpOptions(nodes=nodes.plan_from_flags(0), timeout_seconds=2 * SECONDS))
    assert await admin.list(Node) == []
    kwok = cluster.status().component(components.KWOK)
    assert kwok is not None
    assert kwok.phase is Phase.STOPPED


async def test_up_again_changes_nothing(cluster: LocalCluster) -> None:
    before = await cluster.wait_ready()
    result = await cluster.up()
    assert result.was_running
    assert {each.pid for each in result.state.components} == {each.pid for each in before.components}


async def test_rights_are_applied_twice_without_a_change(cluster: LocalCluster, admin: Client) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/tenantry:kwok"
    before = await admin.request("GET", path)
    await bootstrap.apply_rights(cluster.kubeconfig_path)
    assert await admin.request("GET", path) == before
