"""What hosted control planes are started with (H02): pure."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.errors import InputError
from tenantry.hosting import plane as hosting
from tenantry.hosting import planecontrollers
from tenantry.hosting.certificates import CertificateUse
from tenantry.hosting.noderuntime import DNS_USER
from tenantry.hosting.plane import HostedPlane
from tenantry.local.hosted import LocalPlacement
from tenantry.local.paths import ClusterPaths

PLANE = HostedPlane(uid="a-1", name="acme.web", issuer="https://a-1.example", owner="owner:1", names=("web.example",))


def flags(part: str) -> list[str]:
    """Return the flags of one part of the process."""
    return msgspec.json.decode(hosting.settings(PLANE, 20000, "/openapi"))[part]


def test_every_certificate_that_a_flag_names_is_issued() -> None:
    """H02: the files exist, and none is outside of the control plane's folder."""
    known = {f"{name}.{kind}" for name in hosting.leaves(PLANE) for kind in ("crt", "key")}
    known |= {f"{leaf.ca}.{kind}" for leaf in hosting.leaves(PLANE).values() for kind in ("crt", "key")}
    known |= {"service-account.key", "service-account.pub", hosting.TRUSTED, hosting.CLIENTS, hosting.FRONT_PROXY}
    files = [value for part in ("apiServer", "controllers") for value in flags(part) if "=pki/" in value]
    assert len(files) > 10
    assert {PurePosixPath(value.partition("=")[2]).name for value in files} <= known
    paths = [value.partition("=")[2] for value in flags("apiServer") if re.search(r"=[^,:]*/", value)]
    assert all(value.startswith("pki/") or "/16" in value for value in paths)


def test_every_outgoing_connection_goes_through_the_gate() -> None:
    """H02: webhooks by URL use another selector than those by Service."""
    found = msgspec.json.decode(hosting.egress())["egressSelections"]
    assert {each["name"] for each in found} == {"cluster", "controlplane"}
    assert all(each["connection"]["transport"]["uds"]["udsName"] == hosting.GATE for each in found)
    assert all(each["connection"]["proxyProtocol"] == "HTTPConnect" for each in found)
    assert "--egress-selector-config-file=egress.json" in flags("apiServer")


def test_a_control_plane_that_nodes_join_has_a_scheduler_and_approves_no_certificate() -> None:
    """H04: the approver of Kubernetes signs any name."""
    own = replace(PLANE, has_nodes=True, replicas=3)
    found = msgspec.json.decode(hosting.settings(own, 20000, "/openapi"))
    assert "scheduler" not in msgspec.json.decode(hosting.settings(PLANE, 20000, "/openapi"))
    assert f"--kubeconfig={hosting.SCHEDULER}.kubeconfig" in found["scheduler"]
    assert "--leader-elect=true" in found["scheduler"]
    controllers = next(each for each in found["controllers"] if each.startswith("--controllers="))
    names = controllers.partition("=")[2].split(",")
    assert set(planecontrollers.OF_NODES) < set(names)
    assert not any("approving" in each for each in names)
    assert any("approving" in each for each in flags("controllers"))
    # Neither its scheduler nor CoreDNS nor what simulates nodes or provisions volumes keeps it awake.
    names = (hosting.OPERATOR, hosting.SCHEDULER, hosting.SIMULATOR, hosting.STORAGE)
    users = {hosting.leaves(own)[name].user for name in names}
    assert set(found["activity"]["ignoredUsers"]) == {*users, DNS_USER}
    assert hosting.in_files(own) == (hosting.MANAGER, hosting.SCHEDULER)
    assert hosting.in_files(PLANE) == (hosting.MANAGER,)
    assert {hosting.SCHEDULER, hosting.SIMULATOR, hosting.STORAGE}.isdisjoint(hosting.leaves(PLANE))


def test_certificates_of_nodes_are_of_the_authority_that_kubelets_are_compared_with() -> None:
    """H04: a rotation of the users' credentials must not cut off the nodes."""
    own = msgspec.json.decode(hosting.settings(replace(PLANE, has_nodes=True), 20000, "/openapi"))
    controllers = set(own["controllers"])
    for signer in ("kubelet-client", "kubelet-serving"):
        assert f"--cluster-signing-{signer}-cert-file=pki/ca.crt" in controllers
    for signer in ("kube-apiserver-client", "legacy-unknown"):
        assert f"--cluster-signing-{signer}-cert-file=pki/users-ca.crt" in controllers
    assert "--cluster-signing-duration=720h" in controllers
    # Kubernetes accepts either the common files or those of each signer.
    assert not any(each.startswith("--cluster-signing-cert-file") for each in controllers)
    assert "--kubelet-certificate-authority=pki/trusted.crt" in own["apiServer"]
    assert "--enable-bootstrap-token-auth" in own["apiServer"]
    assert "--enable-bootstrap-token-auth" not in flags("apiServer")
    reached = msgspec.json.decode(
        hosting.settings(replace(PLANE, has_nodes=True, advertised="10.113.0.1"), 20000, "/openapi")
    )
    assert "--advertise-address=10.113.0.1" in reached["apiServer"]


def test_tokens_and_identities_are_the_control_planes_own() -> None:
    """H02: no token lives longer than a day, and users are no members of system:masters, whose rights never end."""
    leaves = hosting.leaves(PLANE)
    assert f"--service-account-issuer={PLANE.issuer}" in flags("apiServer")
    assert "--service-account-max-token-expiration=24h" in flags("apiServer")
    assert "--service-account-extend-token-expiration=false" in flags("apiServer")
    assert (leaves[hosting.OWNER].user, leaves[hosting.OWNER].group) == ("owner:1", "")
    assert [name for name, leaf in leaves.items() if leaf.group == "system:masters"] == [hosting.OPERATOR]
    assert "web.example" in leaves["server"].names
    assert "10.96.0.1" in leaves["server"].names
    assert hosting.kubelet(["10.0.0.7"]).ca not in {leaves["server"].ca, leaves["front-proxy-client"].ca}
    assert hosting.kubelet(["10.0.0.7"]).use is CertificateUse.SERVER


def test_the_controllers_are_those_that_need_no_nodes() -> None:
    """H02: the list of the design, without a repetition; the conformance tests need the last one."""
    (given,) = (value for value in flags("controllers") if value.startswith("--controllers="))
    names = given.partition("=")[2].split(",")
    assert names == sorted(set(names))
    assert len(names) == 30
    assert not {name for name in names if name.startswith(("node-", "taint-", "persistentvolume-binder", "token"))}


@pytest.mark.parametrize("uid", ["", "../up", "a/b", "A", "x" * 65, "a\n"])
async def test_a_folder_is_never_outside_of_the_hosted_ones(tmp_path: object, uid: str) -> None:
    """H02: the uid comes from an API server, and becomes a path."""
    place = LocalPlacement(ClusterPaths(tmp_path))  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="is not the uid of an object"):
        await place.remove(uid)


def test_it_does_not_wake_to_look_after_itself() -> None:
    """H02: the cache of watches has a timer of a second for each kind, and peers write a lease every ten seconds."""
    assert "--watch-cache=false" in flags("apiServer")
    (gates,) = (value for value in flags("apiServer") if value.startswith("--feature-gates="))
    assert "UnknownVersionInteroperabilityProxy=false" in gates
