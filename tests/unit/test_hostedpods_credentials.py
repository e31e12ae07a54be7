"""The files of control planes in Pods: complete, without keys that the process does not need, and replaced (H02)."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tenantry.api.errors import InputError
from tenantry.hostedpods import checks, credentials, objects, versionimages
from tenantry.hostedpods.objects import PodSettings
from tenantry.hostedpods.podsockets import USUAL
from tenantry.hosting import plane as hosting
from tenantry.hosting import serveroptions, sidecar
from tenantry.hosting.plane import CredentialGenerations, ForwardedGroup, ForwardedResource, HostedPlane, ServerOptions
from tenantry.local import hostedversions
from tenantry.local.paths import ClusterPaths

Json = dict[str, Any]

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
GROUP = ForwardedGroup(
    group="metrics.k8s.io", version="v1beta1", resources=(ForwardedResource(name="pods", kind="PodMetrics"),)
)
PLANE = HostedPlane(
    uid="0b5f3a52-7d7e-4c3a-9a52-7f6b1b8c9d10",
    name="acme.web",
    issuer="https://a-1.example",
    owner="owner:1",
    forwarded=GROUP,
    options=ServerOptions(audit_level="Metadata"),
)


@pytest.fixture
def paths(tmp_path: Path) -> ClusterPaths:
    """The folder of the operator."""
    return ClusterPaths(tmp_path)


@pytest.fixture
def known(paths: ClusterPaths) -> dict[str, bytes]:
    """The Secret with all keys after the first start."""
    paths.folder.mkdir(exist_ok=True)
    return credentials.issue(PLANE, paths.pki, {}, NOW)


def rotated(users: int, authorities: int) -> HostedPlane:
    """Return the control plane with other credentials."""
    return replace(PLANE, credentials=CredentialGenerations(users=users, authorities=authorities))


def settings_of(files: dict[str, bytes]) -> Json:
    """Return the settings of the process."""
    found: Json = msgspec.json.decode(files[hosting.SETTINGS])
    return found


def digest(files: dict[str, bytes], own: dict[str, bytes]) -> str:
    """Return what the Pod is replaced by."""
    settings = PodSettings(image="registry.example/hosted:1")
    return objects.digest_of(objects.stateful_set(PLANE.uid, settings, None, files, own))


@pytest.mark.usefixtures("known")
def test_every_file_that_a_flag_names_is_in_the_pod(paths: ClusterPaths) -> None:
    """The API server does not start without one of them."""
    files, _ = credentials.contents(PLANE, paths)
    flags = [*settings_of(files)["apiServer"], *settings_of(files)["controllers"]]
    values = [each.partition("=")[2] for each in flags]
    in_folder = {each for each in values if re.fullmatch(r"[a-z-]+\.(json|kubeconfig)", each)}
    in_pki = {each.removeprefix("pki/") for each in values if each.startswith("pki/")}
    assert {"egress.json", serveroptions.AUTHENTICATION, serveroptions.AUDIT_POLICY} < in_folder
    assert in_folder | {hosting.SETTINGS} == set(objects.MOUNTED)
    assert in_pki == set(files) - set(objects.MOUNTED)


@pytest.mark.usefixtures("known")
def test_the_process_gets_no_key_with_which_it_could_pass_for_others(paths: ClusterPaths) -> None:
    """H01: neither identities of Tenantry and of users, nor the authorities of servers and of the tunnel."""
    files, own = credentials.contents(PLANE, paths)
    keys = {each for each in files if each.endswith(".key")}
    assert keys == {
        *("server.key", "service-account.key", "kubelet-client.key", "front-proxy-client.key"),
        f"{hosting.USERS_CA}.key",
    }
    assert set(own) == {"ca.crt", "tls.crt", "tls.key"}


@pytest.mark.usefixtures("known")
def test_the_sidecar_serves_every_socket_that_the_process_connects_to(paths: ClusterPaths) -> None:
    plane = replace(PLANE, admission=(hosting.AdmissionRule(resource="services"),))
    files, own = credentials.contents(plane, paths)
    text = files[hosting.SETTINGS].decode() + files["egress.json"].decode()
    named = set(re.findall(r'"([^"]*)\.sock"', text)) - {USUAL.of_process + sidecar.socket_name(hosting.ACTIVITY)}
    pod = objects.stateful_set(PLANE.uid, PodSettings(image="i"), None, files, own)["spec"]["template"]["spec"]
    command = next(each["command"] for each in pod["containers"] if each["name"] == "sidecar")
    (served,) = [each.partition("=")[2].split(",") for each in command if each.startswith("-names=")]
    assert named == {USUAL.of_process + each for each in served}


def test_a_start_without_a_change_keeps_the_pod(paths: ClusterPaths, known: dict[str, bytes]) -> None:
    before = digest(*credentials.contents(PLANE, paths))
    assert credentials.issue(PLANE, paths.pki, known, NOW + 200 * DAY) == known
    assert digest(*credentials.contents(PLANE, paths)) == before


def test_a_rotation_of_users_replaces_the_pod_and_their_authority(paths: ClusterPaths, known: dict[str, bytes]) -> None:
    before = credentials.contents(PLANE, paths)
    plane = rotated(1, 0)
    after = credentials.issue(plane, paths.pki, known, NOW + DAY)
    assert digest(*credentials.contents(plane, paths)) != digest(*before)
    changed = {name for name in known if after[name] != known[name]} - {"index.json"}
    users = {f"{name}.{kind}" for name in (hosting.USERS_CA, hosting.OWNER) for kind in ("crt", "key")}
    assert changed == {*users, hosting.CLIENTS}
    assert credentials.issue(plane, paths.pki, after, NOW + DAY) == after


def test_a_rotation_of_all_keeps_former_tokens_for_the_overlap(paths: ClusterPaths, known: dict[str, bytes]) -> None:
    plane = rotated(1, 1)
    after = credentials.issue(plane, paths.pki, known, NOW + DAY)
    files, own = credentials.contents(plane, paths)
    (former,) = [name for name in files if name.startswith("former-")]
    assert files[former] == known["service-account.pub"]
    assert f"--service-account-key-file=pki/{former}" in settings_of(files)["apiServer"]
    assert files[hosting.TRUSTED].count(b"BEGIN CERTIFICATE") == 2
    assert own["ca.crt"] != known[f"{sidecar.AUTHORITY}.crt"]
    assert credentials.renewal(plane, paths.pki) == NOW + DAY + hosting.OVERLAP
    ended = credentials.issue(plane, paths.pki, after, NOW + DAY + hosting.OVERLAP)
    assert former not in ended
    assert former not in credentials.contents(plane, paths)[0]


def test_keys_that_no_secret_has_are_forgotten(paths: ClusterPaths, known: dict[str, bytes]) -> None:
    """The operator ended before it wrote them, or another replica has issued others: those of the Secret hold."""
    credentials.issue(rotated(1, 1), paths.pki, known, NOW + DAY)
    assert credentials.issue(PLANE, paths.pki, known, NOW + DAY) == known


def test_certificates_of_the_tunnel_are_renewed_although_the_others_are_newer(
    paths: ClusterPaths, known: dict[str, bytes]
) -> None:
    """They would end while the Pod runs, and the operator could not connect."""
    first = credentials.renewal(PLANE, paths.pki)
    assert first is not None
    older = {name: data for name, data in known.items() if name.startswith((sidecar.SERVER, "index."))}
    credentials.issue(PLANE, paths.pki, older, NOW + 100 * DAY)
    assert credentials.renewal(PLANE, paths.pki) == first
    after = credentials.issue(PLANE, paths.pki, known, first)
    assert after[f"{sidecar.SERVER}.crt"] != known[f"{sidecar.SERVER}.crt"]


@pytest.mark.parametrize(
    ("plane", "problem"),
    [
        (replace(PLANE, replicas=2), "spec.replicas must be 1 unless the datastore"),
        (replace(PLANE, version="1.35"), "'1.35' is not a version of Kubernetes that control planes can have here"),
    ],
)
def test_what_pods_do_not_have_is_refused(plane: HostedPlane, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        checks.check(plane)


def test_the_version_is_the_one_that_the_image_is_built_with() -> None:
    assert hostedversions.known() == (*versionimages.OTHERS, versionimages.DEFAULT)
    checks.check(replace(PLANE, version=versionimages.DEFAULT.name))
