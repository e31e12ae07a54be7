"""What a manifest is made of, how it looks once the API server has filled it in, and what it uses of a quota."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.api.model import Resource
from tenantry.policy.explain.parts import CLAIMS, PODS, Part, filled_in, parts_of, usage

Json = dict[str, Any]

DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")


def container(name: str = "c", image: str = "busybox", **resources: Json) -> Json:
    """Return a container with limits and requests."""
    return {"name": name, "image": image, "resources": resources}


def test_a_deployment_is_itself_and_its_pods() -> None:
    """X07: pods are created by the controller, as many as there are replicas, with generated names."""
    template = {"metadata": {"labels": {"a": "b"}, "name": "dropped"}, "spec": {"containers": [container()]}}
    manifest = {"metadata": {"name": "web"}, "spec": {"replicas": 3, "template": template}}
    itself, pods = parts_of(manifest, DEPLOYMENTS)
    assert (itself.object, itself.path, itself.count, itself.user) == (manifest, (), 1, "")
    assert (pods.resource, pods.path, pods.count) == (PODS, ("spec", "template"), 3)
    assert pods.user == "system:serviceaccount:kube-system:replicaset-controller"
    assert pods.object["metadata"] == {"labels": {"a": "b"}, "generateName": "web-"}
    assert (pods.object["kind"], pods.object["apiVersion"]) == ("Pod", "v1")


def test_the_template_of_a_cron_job_is_deeper() -> None:
    """X07: pods come from a Job that comes from the CronJob."""
    template = {"spec": {"containers": [container()]}}
    manifest = {"metadata": {}, "spec": {"jobTemplate": {"spec": {"parallelism": 2, "template": template}}}}
    _, pods = parts_of(manifest, CRON_JOBS)
    assert (pods.count, pods.object["metadata"]["generateName"]) == (2, "x-")


def test_a_stateful_set_also_has_claims() -> None:
    """X07: one of each template for each replica."""
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}
    spec: Json = {"replicas": 2, "template": {"spec": {"containers": []}}, "volumeClaimTemplates": [claim]}
    _, _, claims = parts_of({"metadata": {"name": "db"}, "spec": spec}, STATEFUL_SETS)
    assert (claims.resource, claims.count) == (CLAIMS, 2)
    assert claims.object["metadata"]["generateName"] == "data-db-"
    assert claims.path == ("spec", "volumeClaimTemplates", 0)


def test_a_workload_without_a_template_has_no_pods() -> None:
    """X07: the API server refuses it, and says so."""
    assert len(parts_of({"metadata": {"name": "web"}, "spec": {}}, DEPLOYMENTS)) == 1
    assert len(parts_of({"metadata": {"name": "c"}}, CONFIG_MAPS)) == 1


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1", "IfNotPresent"),
        ("reg:5000/busybox", "Always"),
        ("busybox@sha256:0", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    """X07: as in Kubernetes, "Images"."""
    value = filled_in({"spec": {"containers": [container(image=image)]}}, PODS, [])
    assert value["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_pods_pull_where_a_policy_sets_it() -> None:
    """X07: `explain denied` does not name a rule that the mutating policy fulfils."""
    volumes: list[Json] = [{"name": "v", "image": {"reference": "data:1"}}, {"name": "w", "emptyDir": {}}]
    pod: Json = {"spec": {"containers": [container(image="busybox:1")], "volumes": volumes}}
    spec = filled_in(pod, PODS, [], pulls=True)["spec"]
    assert spec["containers"][0]["imagePullPolicy"] == spec["volumes"][0]["image"]["pullPolicy"] == "Always"
    assert "image" not in spec["volumes"][1]


def test_limits_come_from_the_limit_range_and_requests_from_limits() -> None:
    """B03: what a container names itself stays."""
    item = {"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"memory": "64Mi"}}
    ranges = [{"spec": {"limits": [item, {"type": "Pod", "default": {"cpu": "9"}}]}}]
    pod = {"spec": {"containers": [container(limits={"cpu": "2"})]}}
    resources = filled_in(pod, PODS, ranges)["spec"]["containers"][0]["resources"]
    assert resources == {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "2", "memory": "64Mi"}}
    assert "requests" not in pod["spec"]["containers"][0]["resources"], "what is given stays as it is"


def test_ports_are_the_nodes_in_its_network() -> None:
    """E15: hostNetwork makes every port one of the node."""
    ports = [{"containerPort": 80}, {"containerPort": 81, "hostPort": 8081}]
    pod = {"spec": {"hostNetwork": True, "containers": [{**container(), "ports": ports}]}}
    found = filled_in(pod, PODS, [])["spec"]["containers"][0]["ports"]
    assert [each["hostPort"] for each in found] == [80, 8081]


def test_claims_get_the_default_class_of_the_rules() -> None:
    """E16: only those that name none."""
    assert filled_in({"spec": {}}, CLAIMS, [], "fast")["spec"]["storageClassName"] == "fast"
    assert filled_in({"spec": {"storageClassName": ""}}, CLAIMS, [], "fast")["spec"]["storageClassName"] == ""
    assert filled_in({"spec": {}}, CLAIMS, [])["spec"] == {}


def used(resource: Resource, value: Json, count: int = 1) -> dict[str, str]:
    """Return what objects use of a quota."""
    return usage(Part(resource=resource, object=value, count=count), value)


MEMORY = container("b", requests={"cpu": "500m"}, limits={"memory": "1Gi"})


def test_pods_use_what_their_containers_request_together() -> None:
    """E09: a container before the others counts if it asks for more than they do."""
    containers = [
        container("a", requests={"cpu": "1"}),
        container("b", requests={"cpu": "500m"}, limits={"memory": "1Gi"}),
    ]
    first = [container("i", requests={"cpu": "2"})]
    spec = {"containers": containers, "initContainers": first, "overhead": {"cpu": "100m"}}
    found = used(PODS, {"spec": spec}, count=2)
    assert found == {"count/pods": "2", "limits.memory": str(2 * 2**30), "pods": "2", "requests.cpu": "4200m"}


def test_a_sidecar_runs_beside_the_others() -> None:
    """E09: its requests are added, also to those of containers that run after it and before the others."""
    sidecar = {**container("s", requests={"cpu": "1"}), "restartPolicy": "Always"}
    inits = [sidecar, container("i", requests={"cpu": "3"})]
    spec = {"containers": [container("a", requests={"cpu": "1"})], "initContainers": inits}
    assert used(PODS, {"spec": spec})["requests.cpu"] == "4"


def test_extended_resources_count_as_requests() -> None:
    """E09: Kubernetes has no quota of their limits."""
    gpu: Json = {"example.com/gpu": "1"}
    found = used(PODS, {"spec": {"containers": [container(requests=gpu, limits=gpu)]}})
    assert found["requests.example.com/gpu"] == "1"
    assert "limits.example.com/gpu" not in found


SERVICE_USES: list[tuple[Json, Json]] = [
    ({"type": "ClusterIP", "ports": [{}]}, {}),
    ({"type": "NodePort", "ports": [{}, {}]}, {"services.nodeports": "2"}),
    ({"type": "LoadBalancer", "ports": [{}]}, {"services.loadbalancers": "1", "services.nodeports": "1"}),
    ({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}, {"services.loadbalancers": "1"}),
]


@pytest.mark.parametrize(("spec", "expected"), SERVICE_USES)
def test_services_use_load_balancers_and_ports_of_nodes(spec: Json, expected: Json) -> None:
    """E09: as Kubernetes counts them."""
    assert used(SERVICES, {"spec": spec}) == {"count/services": "1", "services": "1", **expected}


def test_claims_use_storage_and_others_only_their_number() -> None:
    """E09: count/ takes any kind."""
    claim = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    assert used(CLAIMS, claim, 3)["requests.storage"] == str(6 * 2**30)
    assert used(DEPLOYMENTS, {"spec": {}}) == {"count/deployments.apps": "1"}
