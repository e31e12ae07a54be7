"""The Jobs that keep snapshots of control planes in Pods, and the images of their versions (H02)."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api.errors import InputError
from tenantry.hostedpods import jobs, objects, versionimages
from tenantry.hostedpods.jobs import KeeperRole
from tenantry.hostedpods.objects import PodSettings
from tenantry.hosting import sidecar
from tenantry.hosting.plane import HostedLimits

Json = dict[str, Any]

UID = "0b5f3a52-7d7e-4c3a-9a52-7f6b1b8c9d10"
IMAGE = "registry.example/hosted:1"
FILES = {"settings.json": b"{}", "egress.json": b"{}", "ca.crt": b"c"}
LIMITS = HostedLimits(memory_bytes=268435456, cpu_millis=50)
SET = objects.stateful_set(UID, PodSettings(image=IMAGE), LIMITS, FILES, {"tls.key": b"s"})
PROCESS = next(each for each in SET["spec"]["template"]["spec"]["containers"] if each["name"] == objects.PROCESS)


def spec_of(job: Json) -> Json:
    found: Json = job["spec"]["template"]["spec"]
    return found


def container_of(job: Json) -> Json:
    (found,) = spec_of(job)["containers"]
    return found


@pytest.mark.parametrize("job", [jobs.of_data(UID, SET, ""), jobs.of_place(UID, IMAGE, "snapshots")])
def test_a_job_has_no_privilege_and_no_credential_of_the_host(job: Json) -> None:
    """H01: Pod Security Standard restricted, no token; and no Service leads to it."""
    spec, container = spec_of(job), container_of(job)
    assert (spec["automountServiceAccountToken"], spec["restartPolicy"]) == (False, "Never")
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == objects.CONTAINER_SECURITY
    assert objects.UID_LABEL not in job["spec"]["template"]["metadata"]["labels"]
    assert job["spec"]["ttlSecondsAfterFinished"] == 0
    (keys,) = [each["secret"]["secretName"] for each in spec["volumes"] if each["name"] == "sidecar"]
    assert keys == job["metadata"]["name"] != objects.sidecar_name(UID)


def test_the_job_of_a_destination_has_the_folder_of_one_control_plane_and_nothing_of_it() -> None:
    """H01: neither another control plane's snapshots, nor its own database, nor a program that reads one."""
    job = jobs.of_place(UID, IMAGE, "snapshots")
    mounts = {each["name"]: each.get("subPath") for each in container_of(job)["volumeMounts"]}
    assert mounts == {"kept": UID, "sidecar": None}
    claims = [each["persistentVolumeClaim"]["claimName"] for each in spec_of(job)["volumes"] if each["name"] == "kept"]
    assert claims == ["snapshots"]
    assert not [each for each in container_of(job)["command"] if each.startswith(("-program", "-settings"))]


def test_no_job_prints_an_audit_log() -> None:
    audited = objects.stateful_set(UID, PodSettings(image=IMAGE), LIMITS, FILES, {}, has_audit_log=True)
    assert "initContainers" not in spec_of(jobs.of_data(UID, audited, ""))


def test_the_job_of_a_control_plane_has_what_its_process_has() -> None:
    """H02: its volume, settings, limits and program; another version has another program."""
    job = jobs.of_data(UID, SET, "")
    container = container_of(job)
    assert container["image"] == IMAGE
    assert container["resources"] == PROCESS["resources"]
    assert [each for each in PROCESS["volumeMounts"] if each not in container["volumeMounts"]] == []
    assert set(objects.KEEPING) < set(container["command"])
    assert container_of(jobs.of_data(UID, SET, "other"))["image"] == "other"


def test_a_datastore_elsewhere_is_reached_as_by_the_process() -> None:
    """H02: the container that leads there ends with the keeper; labels admit the Pod; the volume does not stay."""
    spec: Json = SET["spec"]["template"]["spec"]
    data: Json = {"name": "data", "emptyDir": {}}
    volumes: list[Json] = [data, *(each for each in spec["volumes"] if each["name"] != "data")]
    other: Json = {**spec, "containers": [*spec["containers"], {"name": "store", "image": IMAGE}], "volumes": volumes}
    labels = {**SET["spec"]["template"]["metadata"]["labels"], "reaches": "etcd"}
    found: Json = {"spec": {"template": {"metadata": {"labels": labels}, "spec": other}}}
    job = jobs.of_data(UID, found, "")
    assert spec_of(job)["initContainers"] == [{"name": "store", "image": IMAGE, "restartPolicy": "Always"}]
    given = job["spec"]["template"]["metadata"]["labels"]
    assert given["reaches"] == "etcd"
    assert objects.UID_LABEL not in given
    assert (jobs.keeps_snapshots(SET), jobs.keeps_snapshots(found)) == (True, False)


def test_jobs_of_two_control_planes_are_apart() -> None:
    assert jobs.selector(UID, KeeperRole.DATA) != jobs.selector(UID, KeeperRole.PLACE)
    assert f"-keeper=:{sidecar.KEEPER_PORT}" in container_of(jobs.of_place(UID, IMAGE, "snapshots"))["command"]


def test_each_version_has_its_image() -> None:
    found = versionimages.read(["a", "1.35=b"])
    assert found is not None
    assert [found.of(each) for each in ("", "1.36", "1.35")] == ["a", "a", "b"]
    assert [each.name for each in found.versions()] == ["1.35", "1.36"]
    assert versionimages.read((found.default, *found.values())) == found
    assert versionimages.read([]) is None
    alone = versionimages.read(["a"])
    assert alone is not None
    assert [each.name for each in alone.versions()] == ["1.36"]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (["1.35=b"], "the image of 1.36 is missing"),
        (["a", "1.20=b"], "'1.20' is not another version"),
        (["a", "1.36=b"], "'1.36' is not another version"),
        (["a", "b"], "two images of 1.36"),
        (["a", "1.35="], "must be IMAGE or VERSION=IMAGE"),
        (["a b"], "must be IMAGE or VERSION=IMAGE"),
    ],
)
def test_images_that_do_not_fit_are_refused(values: list[str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        versionimages.read(values)
