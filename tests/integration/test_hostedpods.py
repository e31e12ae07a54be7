"""Control planes in Pods on a real API server: the operator's rights, Pod Security, and the tunnel of a sidecar."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import re
import ssl
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from cryptography import x509
from msgspec.structs import replace

from tenantry.api.errors import Forbidden, InputError, LocalError, StoreError
from tenantry.api.model import Json, Resource
from tenantry.api.virtualcontrolplane import PROCESS_NAMESPACE
from tenantry.controllers.virtualcontrolplane import metrics
from tenantry.engine.tasks import in_background
from tenantry.hostedpods import jobs, objects, placement, workers
from tenantry.hostedpods.jobs import KeeperRole
from tenantry.hostedpods.objects import PodSettings
from tenantry.hostedpods.placement import PodPlacement
from tenantry.hosting import sidecar
from tenantry.hosting.destinations import Refused
from tenantry.hosting.forwarding import ForwardedRead, ForwardingServer
from tenantry.hosting.gate import Gate
from tenantry.hosting.plane import FORWARDED, CredentialGenerations, HostedLimits, HostedPlane
from tenantry.hosting.sidecar import SidecarTunnel
from tenantry.hosting.snapshotplaces import SnapshotPlace, SnapshotPlaceKind
from tenantry.install import manifests, planepods
from tenantry.install.planepods import PodOptions
from tenantry.kube.client import Client
from tenantry.local import build, pki
from tenantry.local.progress import SilentProgress
from testkit import ports
from testkit.api import PODS, ROLES, SECONDS, SECRETS, Api, until
from testkit.hostedplanes import installed

UID = "0b5f3a52-7d7e-4c3a-9a52-7f6b1b8c9d10"
PLANE = HostedPlane(
    uid=UID,
    name="acme.web",
    issuer="https://a-1.example",
    owner="owner:1",
    limits=HostedLimits(memory_bytes=2**28, cpu_millis=50),
)
KINDS = (objects.SECRETS, objects.SERVICES, objects.CLAIMS, objects.STATEFUL_SETS, PODS)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose sockets have short paths, as in a Pod."""
    with tempfile.TemporaryDirectory(prefix="pod-") as folder:
        yield Path(folder)


@pytest_asyncio.fixture
async def operator(admin: Client) -> AsyncGenerator[Client]:
    """The ServiceAccount of the operator, with the rights of this installation only."""
    async with installed(admin, PodOptions(image="registry.example/hosted:1")) as client:
        yield client


async def pods_of(host: Api, uid: str) -> list[Json]:
    """Return the Pods of a control plane."""
    found = await host.list(PODS, PROCESS_NAMESPACE)
    return [each for each in found if each["metadata"]["labels"].get(objects.UID_LABEL) == uid]


async def refused(attempt: Callable[[], Awaitable[object]], pattern: str, error: type[Exception] = LocalError) -> None:
    """Try something again and again until its error matches: each try waits for a Pod for a short time only."""

    async def so() -> bool:
        with pytest.raises(error) as caught:
            await attempt()
        return re.search(pattern, str(caught.value)) is not None

    await until(so, f"the error matches {pattern!r}", seconds=2 * SECONDS)


async def test_the_operator_makes_and_removes_the_objects_with_its_rights_here(
    admin: Client, operator: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H01: Pod Security admits the Pod; what keeps it from starting is reported; nothing is left at the end."""
    monkeypatch.setattr(placement, "START_SECONDS", 3.0)
    host = Api(admin)
    found = PodPlacement(operator, PodSettings(image="registry.example/hosted:1"), tmp_path)
    # The cluster has no nodes.
    await refused(lambda: found.start(PLANE), "is not ready after 3 s: Unschedulable")
    (pod,) = await pods_of(host, UID)
    assert objects.digest_of(pod) == objects.digest_of(
        await host.get(objects.STATEFUL_SETS, objects.name(UID), PROCESS_NAMESPACE)
    )
    keys = await host.get(SECRETS, objects.keys_name(UID), PROCESS_NAMESPACE)
    with pytest.raises(LocalError):
        await found.start(PLANE)
    # Another replica, and another start, find the same keys.
    other = PodPlacement(operator, PodSettings(image="registry.example/hosted:1"), tmp_path / "other")
    with pytest.raises(LocalError):
        await other.start(PLANE)
    assert (await host.get(SECRETS, objects.keys_name(UID), PROCESS_NAMESPACE))["data"] == keys["data"]
    (still,) = await pods_of(host, UID)
    assert still["metadata"]["uid"] == pod["metadata"]["uid"]
    # The process gets neither the operator's identity nor its users'.
    own = await host.get(SECRETS, objects.name(UID), PROCESS_NAMESPACE)
    assert not {"operator.key", "owner.key", "ca.key", "sidecar.key", "sidecar-ca.key"} & set(own["data"])
    # A rotation replaces the Pod, and is not done until the new one is ready.
    credentials = CredentialGenerations(users=1, authorities=1)
    with pytest.raises(LocalError, match="is not ready"):
        await other.start(replace(PLANE, credentials=credentials))
    rotated = await host.get(SECRETS, objects.keys_name(UID), PROCESS_NAMESPACE)
    changed = {name for name, data in keys["data"].items() if rotated["data"].get(name) != data}
    assert {"ca.key", "users-ca.key", "service-account.key", "sidecar-ca.key"} < changed

    async def replaced() -> bool:
        return pod["metadata"]["uid"] not in {each["metadata"]["uid"] for each in await pods_of(host, UID)}

    await until(replaced, "the Pod with the former keys is gone", seconds=SECONDS)
    # The replica that has not seen it goes by the Secret.
    with pytest.raises(LocalError):
        await found.start(replace(PLANE, credentials=credentials))
    assert (await host.get(SECRETS, objects.keys_name(UID), PROCESS_NAMESPACE))["data"] == rotated["data"]
    await found.remove(UID)
    for kind in KINDS:

        async def gone(kind: Resource = kind) -> bool:
            return not [each for each in await host.list(kind, PROCESS_NAMESPACE) if UID in each["metadata"]["name"]]

        await until(gone, f"no {kind.plural} are left", seconds=SECONDS)


async def test_snapshots_need_a_started_control_plane_and_a_claim_that_exists(
    admin: Client, operator: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H02: what is missing is told at once; Pod Security admits both Jobs, which the operator makes and deletes."""
    monkeypatch.setattr(placement, "START_SECONDS", 2.0)
    monkeypatch.setattr(workers, "START_SECONDS", 6.0)
    host, plane = Api(admin), replace(PLANE, uid="2b5f3a52-7d7e-4c3a-9a52-7f6b1b8c9d12")
    found = PodPlacement(operator, PodSettings(image="registry.example/hosted:1"), tmp_path)
    with pytest.raises(InputError, match="has not been started yet"):
        await found.snapshots.take(plane.uid)
    with pytest.raises(LocalError, match="is not ready"):
        await found.start(plane)
    claim = SnapshotPlace(name="archive", kind=SnapshotPlaceKind.CLAIM, claim="archive")
    with pytest.raises(StoreError, match='destination "archive": its claim does not exist in namespace'):
        await found.snapshots_at(claim).take(plane.uid)
    spec: Json = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    await host.create(objects.CLAIMS, {"metadata": {"name": "archive"}, "spec": spec}, PROCESS_NAMESPACE)
    # The cluster has no nodes.
    pattern = r'destination "archive": Pod .* is not ready after 6 s: Unschedulable'
    await refused(lambda: found.snapshots_at(claim).kept(plane.uid), pattern, StoreError)
    # It may run without being known to this replica: it ends before another Pod has its volume.
    with pytest.raises(StoreError, match=r"the volume of the control plane: Pod .* is not ready after 6 s"):
        await found.snapshots.take(plane.uid)
    stopped = await host.get(objects.STATEFUL_SETS, objects.name(plane.uid), PROCESS_NAMESPACE)
    assert stopped["spec"]["replicas"] == 0
    names = {jobs.name(plane.uid, each) for each in KeeperRole}
    assert names <= {each["metadata"]["name"] for each in await host.list(jobs.JOBS, PROCESS_NAMESPACE)}
    keys = await host.get(SECRETS, jobs.name(plane.uid, KeeperRole.DATA), PROCESS_NAMESPACE)
    assert set(keys["data"]) == {"ca.crt", "tls.crt", "tls.key"}
    assert keys["metadata"]["ownerReferences"][0]["kind"] == "Job"
    # The volume is free before the process starts.
    with pytest.raises(LocalError, match="is not ready"):
        await found.start(plane)
    assert await host.find(jobs.JOBS, jobs.name(plane.uid, KeeperRole.DATA), PROCESS_NAMESPACE) is None
    await found.remove(plane.uid)
    for kind in (*KINDS, jobs.JOBS):

        async def gone(kind: Resource = kind) -> bool:
            left = await host.list(kind, PROCESS_NAMESPACE)
            return not [each for each in left if plane.uid in each["metadata"]["name"]]

        await until(gone, f"no {kind.plural} are left", seconds=SECONDS)
    await host.delete(objects.CLAIMS, "archive", PROCESS_NAMESPACE)


async def test_users_reach_a_load_balancer_at_its_address(
    admin: Client, operator: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H01: the API server is made only when its certificate can name this address."""
    monkeypatch.setattr(placement, "START_SECONDS", 2.0)
    host, plane = Api(admin), replace(PLANE, uid="1b5f3a52-7d7e-4c3a-9a52-7f6b1b8c9d11")
    settings = PodSettings(image="registry.example/hosted:1", service_type="LoadBalancer")
    found = PodPlacement(operator, settings, tmp_path)
    with pytest.raises(LocalError, match="has no address yet"):
        await found.start(plane)
    assert await host.find(objects.STATEFUL_SETS, objects.name(plane.uid), PROCESS_NAMESPACE) is None
    given = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.77"}]}}}
    name = objects.name(plane.uid)
    await admin.merge_patch(objects.SERVICES, PROCESS_NAMESPACE, name, given, subresource="status")
    with pytest.raises(LocalError, match="is not ready"):
        await found.start(plane)
    own = objects.files_of(await host.get(SECRETS, name, PROCESS_NAMESPACE))
    certificate = x509.load_pem_x509_certificate(own["server.crt"])
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert ipaddress.ip_address("192.0.2.77") in names.get_values_for_type(x509.IPAddress)
    await found.remove(plane.uid)


async def test_the_operator_reads_no_secret_elsewhere_and_lists_none(operator: Client) -> None:
    """H01: its Role is of one namespace, and Secrets are read by name."""
    for path in (f"/api/v1/namespaces/{PROCESS_NAMESPACE}/secrets", "/api/v1/namespaces/default/secrets/any"):
        with pytest.raises(Forbidden):
            await operator.request("GET", path)


async def test_without_the_installation_the_operator_says_what_is_missing(
    admin: Client, operator: Client, tmp_path: Path
) -> None:
    """H01: the message names the command that gives the rights."""
    host = Api(admin)
    await host.delete(ROLES, planepods.NAME, PROCESS_NAMESPACE)

    async def lost() -> bool:
        return not await host.may(manifests.SERVICE_ACCOUNT, "patch", "", "services", PROCESS_NAMESPACE)

    await until(lost, "the operator has no rights")
    found = PodPlacement(operator, PodSettings(image="registry.example/hosted:1"), tmp_path)
    with pytest.raises(LocalError, match="`tenantry install --virtual-control-planes` gives the rights"):
        await found.start(PLANE)


# -- the tunnel ---------------------------------------------------------------------------------


class Pod:
    """The sidecar of a Pod as a process of this machine, with the sockets that the API server connects to.

    Args:
        folder: Its keys and sockets.
        wait: How long a process waits for the operator.
    """

    def __init__(self, folder: Path, *, wait: str = f"{SECONDS}s") -> None:
        self.folder = folder
        self.port, api = ports.free(2)
        pki.ensure(folder / "pki", sidecar.leaves(), dt.datetime.now(dt.UTC))
        for name, file in (("ca.crt", "sidecar-ca.crt"), ("tls.crt", "sidecar.crt"), ("tls.key", "sidecar.key")):
            (folder / name).write_bytes((folder / "pki" / file).read_bytes())
        program = build.ensure(SilentProgress(), build.SIDECAR).sidecar
        self._command = (
            *(str(program), f"-api=127.0.0.1:{api}", f"-tunnel=127.0.0.1:{self.port}"),
            *(f"-keys={folder}", f"-sockets={folder}", f"-wait={wait}"),
            f"-names={','.join(map(sidecar.socket_name, sidecar.SOCKETS))}",
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run it while the context is open."""
        child = await asyncio.create_subprocess_exec(*self._command, stderr=asyncio.subprocess.PIPE)
        try:
            assert child.stderr is not None
            async with asyncio.timeout(SECONDS):
                assert b"ready" in await child.stderr.readline()
            yield
        finally:
            child.kill()
            await child.wait()

    def context(self, folder: Path) -> ssl.SSLContext:
        """Return the context of an operator with the certificate in a folder."""
        found = ssl.create_default_context(cafile=self.folder / "ca.crt")
        found.load_cert_chain(folder / "pki" / "sidecar-client.crt", folder / "pki" / "sidecar-client.key")
        return found

    async def asked(self) -> bytes:
        """Return how the gate answers the API server."""
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_unix_connection(str(self.folder / "gate.sock"))
            writer.write(b"CONNECT 192.0.2.9:443 HTTP/1.1\r\nHost: 192.0.2.9:443\r\n\r\n")
            found = await reader.read()
            writer.close()
            return found


async def test_the_api_server_in_a_pod_reaches_the_gate_of_the_operator(short_folder: Path) -> None:
    """H01: through connections that the operator has opened; also after a restart of the sidecar, and many at once."""
    pod = Pod(short_folder)
    gate = Gate(short_folder / "own.sock", lambda host, port: Refused(reason=f"no way to {host} at {port}"))
    tunnel = SidecarTunnel("127.0.0.1", pod.context(short_folder), {"gate": short_folder / "own.sock"}, pod.port)
    async with gate.serve(), in_background(tunnel.run()):
        async with pod.running():
            assert b"403 Forbidden" in (first := await pod.asked())
            assert b"no way to 192.0.2.9 at 443" in first
            found = await asyncio.gather(*(pod.asked() for _ in range(3 * sidecar.PARKED)))
            assert all(b"no way to" in each for each in found)
        async with pod.running():
            assert b"no way to" in await pod.asked()


async def test_the_api_server_in_a_pod_reads_the_api_group_of_the_operator(short_folder: Path) -> None:
    """H01: metrics come up through the sidecar, too."""
    pod = Pod(short_folder)
    own = short_folder / "own.sock"

    async def answer(read: ForwardedRead) -> Json:
        return {"kind": "NodeMetricsList", "items": [{"metadata": {"name": read.resource}}]}

    tunnel = SidecarTunnel("127.0.0.1", pod.context(short_folder), {sidecar.socket_name(FORWARDED): own}, pod.port)
    async with ForwardingServer(own, metrics.GROUP, answer).serve(), in_background(tunnel.run()), pod.running():
        connector = aiohttp.UnixConnector(str(short_folder / FORWARDED))
        async with aiohttp.ClientSession(connector=connector) as session:
            for _ in range(3):
                async with asyncio.timeout(SECONDS), session.get("http://a/apis/metrics.k8s.io/v1beta1/nodes") as found:
                    assert (await found.json())["items"] == [{"metadata": {"name": "nodes"}}]


async def test_an_operator_with_the_keys_of_another_pod_gets_nothing(short_folder: Path, tmp_path: Path) -> None:
    """H01: the API server is rejected, and waits for its own operator."""
    pod, other = Pod(short_folder, wait="5s"), Pod(tmp_path)
    served = asyncio.Event()

    def decide(host: str, port: int) -> Refused:
        served.set()
        return Refused(reason=f"{host}:{port}")

    gate = Gate(short_folder / "own.sock", decide)
    foreign = SidecarTunnel("127.0.0.1", pod.context(other.folder), {"gate": short_folder / "own.sock"}, pod.port)
    async with gate.serve(), pod.running():
        async with in_background(foreign.run()):
            with pytest.raises(ConnectionResetError):
                await pod.asked()
        assert not served.is_set()
        own = SidecarTunnel("127.0.0.1", pod.context(short_folder), {"gate": short_folder / "own.sock"}, pod.port)
        async with in_background(own.run()):
            assert b"403" in await pod.asked()
