"""Lower pods: the fields, names and marks that they have, and the pods that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.mirror.pods import MOST_LINKS, Token, down
from tenantry.mirror.profile import Profile
from testkit.mirroring import FULL, OWNER, PROFILE, changed, copied, lower_pod, upper_pod
from testkit.rfc7396 import merged

Json = dict[str, Any]


def name(kind: str, upper: str) -> str:
    """Return a lower name in the namespace of the pod."""
    return PROFILE.lower_name(kind, "shop", upper)


def lower(pod: Json) -> Json:
    """Return the lower pod of one that is not refused."""
    made = down(pod, PROFILE)
    assert made.refusal == ""
    return made.object


def test_the_metadata_is_made_anew() -> None:
    assert lower(FULL)["metadata"] == {
        "name": name("Pod", "web-0"),
        "namespace": "lower",
        "labels": {
            "app": "web",
            "pod-template-hash": "5d9",
            "example.dev/namespace": "shop",
            "example.dev/owner": "u-plane",
        },
        "annotations": {
            "note": "first",
            "example.dev/name": "web-0",
            "example.dev/namespace": "shop",
            "example.dev/uid": "u-web",
            "example.dev/given-labels": "app,pod-template-hash",
            "example.dev/given-annotations": "note",
            "example.dev/given-gates": "example.com/wait",
        },
        "ownerReferences": [OWNER],
    }


def test_users_cannot_set_marks() -> None:
    pod = upper_pod()
    pod["metadata"] |= {
        "labels": {"example.dev/owner": "u-other", "tenantry.dev/sandbox": "x", "app": "web"},
        "annotations": {"Example.dev/uid": "u-other", "a.tenantry.dev/b": "x", "example.dev/given-labels": "x"},
    }
    metadata = lower(pod)["metadata"]
    assert metadata["labels"] == {"app": "web", **PROFILE.labels("shop")}
    assert set(metadata["annotations"]) == {
        "example.dev/name",
        "example.dev/namespace",
        "example.dev/uid",
        "example.dev/given-labels",
    }
    assert metadata["annotations"]["example.dev/given-labels"] == "app"


def test_what_the_upper_side_decided_stays_there() -> None:
    spec = lower(FULL)["spec"]
    for field in ("serviceAccountName", "serviceAccount", "schedulerName", "nodeName", "priority", "overhead"):
        assert field not in spec
    assert spec["automountServiceAccountToken"] is False
    assert set(lower(FULL)) == {"apiVersion", "kind", "metadata", "spec"}


def test_other_fields_are_unchanged() -> None:
    spec = lower(FULL)["spec"]
    for field in (
        "nodeSelector",
        "tolerations",
        "securityContext",
        "dnsConfig",
        "hostAliases",
        "schedulingGates",
        "os",
    ):
        assert spec[field] == FULL["spec"][field]
    assert spec["affinity"]["nodeAffinity"] == FULL["spec"]["affinity"]["nodeAffinity"]
    before, after = FULL["spec"]["containers"][0], spec["containers"][0]
    assert {**after, "env": 0, "envFrom": 0} == {**before, "env": 0, "envFrom": 0}
    assert spec["volumes"][6] == {"name": "host", "hostPath": {"path": "/etc", "type": ""}}


def test_host_access_goes_down_for_the_lower_policies_to_refuse() -> None:
    container = {"name": "web", "securityContext": {"privileged": True}}
    spec = lower(upper_pod(hostNetwork=True, hostPID=True, hostIPC=True, containers=[container]))["spec"]
    assert (spec["hostNetwork"], spec["hostPID"], spec["hostIPC"]) == (True, True, True)
    assert spec["containers"][0]["securityContext"] == {"privileged": True}


def test_names_of_other_objects_are_translated() -> None:
    spec = lower(FULL)["spec"]
    container, volumes = spec["containers"][0], {each["name"]: each for each in spec["volumes"]}
    values = {each["name"]: each.get("valueFrom") for each in container["env"]}
    assert values["PASSWORD"] == {"secretKeyRef": {"name": name("Secret", "password"), "key": "p"}}
    assert values["COLOUR"]["configMapKeyRef"]["name"] == name("ConfigMap", "colours")
    assert container["envFrom"][0]["configMapRef"]["name"] == name("ConfigMap", "settings")
    assert spec["initContainers"][0]["envFrom"][0]["secretRef"]["name"] == name("Secret", "init")
    assert volumes["settings"]["configMap"]["name"] == name("ConfigMap", "settings")
    assert volumes["keys"]["secret"] == {"secretName": name("Secret", "keys"), "optional": True}
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == name("PersistentVolumeClaim", "data-web-0")
    assert spec["imagePullSecrets"] == [{"name": name("Secret", "registry")}, {"name": ""}]


def test_an_ephemeral_volume_names_the_claim_that_the_upper_side_makes() -> None:
    assert lower(FULL)["spec"]["volumes"][3] == {
        "name": "scratch",
        "persistentVolumeClaim": {"claimName": name("PersistentVolumeClaim", "web-0-scratch")},
    }


def test_tokens_become_files_of_one_secret() -> None:
    made = down(FULL, PROFILE)
    sources = made.object["spec"]["volumes"][7]["projected"]["sources"]
    secret = name("Token", "web-0")
    assert sources[0] == {"secret": {"name": secret, "items": [{"key": "kube-api-access-x.0", "path": "token"}]}}
    assert sources[3] == {"secret": {"name": secret, "items": [{"key": "kube-api-access-x.3", "path": "vault"}]}}
    assert made.tokens == (
        Token(key="kube-api-access-x.0", audience="", seconds=86400, path="token"),
        Token(key="kube-api-access-x.3", audience="vault", seconds=7200, path="vault"),
    )


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ({}, 3600),
        ({"expirationSeconds": 3607}, 86400),
        ({"expirationSeconds": 1}, 600),
        ({"expirationSeconds": 10**9}, 86400),
    ],
)
def test_lifetimes_of_tokens_are_bounded(asked: Json, seconds: int) -> None:
    source = {"serviceAccountToken": {"path": "token", **asked}}
    made = down(upper_pod(volumes=[{"name": "v", "projected": {"sources": [source]}}]), PROFILE)
    assert [token.seconds for token in made.tokens] == [seconds]


def test_the_downward_api_shows_the_upper_pod() -> None:
    spec = lower(FULL)["spec"]
    variables = {each["name"]: each for each in spec["containers"][0]["env"]}
    assert variables["NAME"] == {"name": "NAME", "value": "web-0"}
    assert variables["SPACE"]["value"] == "shop"
    assert variables["UID"]["value"] == "u-web"
    assert variables["ACCOUNT"]["value"] == "shopkeeper"
    assert variables["NODE"]["valueFrom"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert variables["APP"]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.labels['app']"}}
    files = spec["volumes"][4]["downwardAPI"]["items"]
    assert files == [{"path": "n", "fieldRef": {"fieldPath": "metadata.annotations['example.dev/name']"}}]
    projected = spec["volumes"][7]["projected"]["sources"][2]["downwardAPI"]["items"]
    assert [each["fieldRef"]["fieldPath"] for each in projected] == [
        "metadata.annotations['example.dev/namespace']",
        "metadata.labels",
    ]


def test_containers_find_the_services_of_their_namespace_by_the_upper_names() -> None:
    own = {"name": "WEB_SERVICE_PORT", "value": "$(WEB_SERVICE_HOST)"}
    links = {"WEB_SERVICE_HOST": "10.0.0.1", "WEB_SERVICE_PORT": "80"}
    pod = upper_pod(containers=[{"name": "a", "env": [own]}], initContainers=[{"name": "b"}])
    bare = Profile(owner_uid="u", namespace="lower", prefix="example.dev")
    spec = down(pod, bare, links=links).object["spec"]
    host = {"name": "WEB_SERVICE_HOST", "value": "10.0.0.1"}
    assert spec["containers"][0]["env"] == [host, own]
    assert spec["initContainers"][0]["env"] == [host, {"name": "WEB_SERVICE_PORT", "value": "80"}]
    # kubelet would add the lower Services.
    assert spec["enableServiceLinks"] is False
    pod["spec"]["enableServiceLinks"] = False
    assert "env" not in down(pod, bare, links=links).object["spec"]["initContainers"][0]


def test_variables_of_services_are_bounded_for_all_containers_together() -> None:
    """VCP-63: users choose the number of containers and that of Services, and the operator writes their product."""
    links = {f"WEB_{number}_PORT": "80" for number in range(MOST_LINKS // 2)}
    pod = upper_pod(containers=[{"name": each} for each in "ab"], initContainers=[])
    bare = Profile(owner_uid="u", namespace="lower", prefix="example.dev")
    assert len(down(pod, bare, links=links).object["spec"]["containers"][0]["env"]) == len(links)
    pod["spec"]["containers"].append({"name": "c"})
    assert all("env" not in each for each in down(pod, bare, links=links).object["spec"]["containers"])


def test_a_pod_without_a_service_account_shows_the_default_one() -> None:
    variable = {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}}
    spec = lower(upper_pod(containers=[{"name": "web", "env": [variable]}]))["spec"]
    assert {"name": "A", "value": "default"} in spec["containers"][0]["env"]


def test_containers_find_the_upper_api_server() -> None:
    own = {"name": "KUBERNETES_SERVICE_PORT", "value": "1"}
    spec = lower(upper_pod(containers=[{"name": "a"}, {"name": "b", "env": [own]}]))["spec"]
    host = {"name": "KUBERNETES_SERVICE_HOST", "value": "plane.example.dev"}
    assert spec["containers"][0]["env"] == [host, {"name": "KUBERNETES_SERVICE_PORT", "value": "6443"}]
    assert spec["containers"][1]["env"] == [host, own]
    bare = Profile(owner_uid="u", namespace="lower", prefix="example.dev")
    made = down(upper_pod(), bare).object
    assert "env" not in made["spec"]["containers"][0]
    assert "ownerReferences" not in made["metadata"]


@pytest.mark.parametrize(
    ("upper", "given", "hostname"),
    [("web-0", "", "web-0"), ("web-0", "mine", "mine"), ("a" * 62 + "-b", "", "a" * 62), ("web.shop", "", None)],
)
def test_the_hostname_is_that_of_the_upper_pod(upper: str, given: str, hostname: str | None) -> None:
    pod = upper_pod(hostname=given)
    pod["metadata"]["name"] = upper
    assert (lower(pod)["spec"].get("hostname") or None) == hostname


def in_(key: str, *values: str) -> Json:
    """Return an expression of a selector."""
    return {"key": key, "operator": "In", "values": [*values]}


OURS = in_("example.dev/owner", "u-plane")


def test_selectors_of_pods_get_the_namespace() -> None:
    spec = lower(FULL)["spec"]
    near = spec["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]["podAffinityTerm"]
    shop = in_("example.dev/namespace", "shop")
    assert near["labelSelector"] == {"matchLabels": {"app": "web"}, "matchExpressions": [OURS, shop]}
    (far,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert far == {
        "topologyKey": "host",
        "labelSelector": {
            "matchLabels": {"app": "web"},
            "matchExpressions": [OURS, in_("example.dev/namespace", "back", "shop")],
        },
    }
    (spread,) = spec["topologySpreadConstraints"]
    assert "matchLabelKeys" not in spread
    assert spread["labelSelector"]["matchExpressions"] == [in_("pod-template-hash", "5d9"), OURS, shop]


def affine(**term: object) -> Json:
    """Return an upper pod with a required term of affinity."""
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host", **term}]}
    return upper_pod(affinity={"podAffinity": terms})


def term_of(pod: Json) -> Json:
    """Return the lower term of such a pod."""
    (term,) = lower(pod)["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return term


def test_an_empty_namespace_selector_selects_all_namespaces_of_the_owner() -> None:
    term = term_of(affine(labelSelector={}, namespaceSelector={}, namespaces=["shop"]))
    assert term == {"topologyKey": "host", "labelSelector": {"matchExpressions": [OURS]}}


def test_a_term_without_a_selector_still_selects_no_pods() -> None:
    assert term_of(affine()) == {"topologyKey": "host"}


def test_keys_that_the_upper_api_server_merged_are_not_merged_again() -> None:
    expression = in_("app", "web")
    pod = affine(labelSelector={"matchExpressions": [expression]}, matchLabelKeys=["app"], mismatchLabelKeys=["b"])
    pod["metadata"]["labels"] = {"app": "web", "b": "c"}
    assert term_of(pod)["labelSelector"]["matchExpressions"][:2] == [
        expression,
        {"key": "b", "operator": "NotIn", "values": ["c"]},
    ]


CONTAINER_PATH = "spec.containers[0]"


REFUSALS: list[tuple[Json, str]] = [
    ({"schedulerName": "mine"}, "spec.schedulerName must be 'default-scheduler'"),
    ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims may not be set: request devices"),
    ({"schedulingGroup": {"podGroupName": "a"}}, "spec.schedulingGroup may not be set"),
    ({"hostnameOverride": "a.b"}, "spec.hostnameOverride may not be set: set spec.hostname"),
    ({"containers": [{"restartPolicyRules": [{}]}]}, f"{CONTAINER_PATH}.restartPolicyRules may not be set"),
    ({"containers": [{}] * 201}, "spec.containers must have at most 200 items"),
    ({"containers": "x"}, "spec.containers must be a list"),
    ({"containers": [3]}, f"{CONTAINER_PATH} must be an object"),
    ({"hostPID": "yes"}, "spec.hostPID must be true or false"),
    ({"terminationGracePeriodSeconds": True}, "spec.terminationGracePeriodSeconds must be an integer"),
    ({"nodeSelector": {"a": 1}}, "spec.nodeSelector['a'] must be a string"),
    (
        {"volumes": [{"name": "v", "iscsi": {"secretRef": {"name": "x"}}}]},
        "spec.volumes[0] must have exactly one of configMap, downwardAPI, ",
    ),
    (
        {"volumes": [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"secretProviderClass": "x"}}}]},
        "spec.volumes[0].csi may not be set: use a Secret",
    ),
    (
        {"volumes": [{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "p"}}]}}]},
        "spec.volumes[0].projected.sources[0].clusterTrustBundle may not be set: copy",
    ),
    (
        {"volumes": [{"name": "v", "projected": {"sources": [{"podCertificate": {"keyPath": "p"}}]}}]},
        "spec.volumes[0].projected.sources[0].podCertificate may not be set: use a Secret",
    ),
    ({"volumes": [{"name": "v", "secret": {}}]}, "spec.volumes[0].secret.secretName must name a Secret"),
    (
        {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]},
        "spec.volumes[0].projected.sources[0].serviceAccountToken.path must not be empty",
    ),
    (
        {"containers": [{"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]}]},
        f"{CONTAINER_PATH}.env[0].valueFrom.fieldRef.fieldPath must be",
    ),
    (
        {"containers": [{"env": [{"name": "A", "valueFrom": {"fieldRef": {}, "secretKeyRef": {}}}]}]},
        f"{CONTAINER_PATH}.env[0].valueFrom must have exactly one of",
    ),
    ({"serviceAccountName": 3}, "spec.serviceAccountName must be a string"),
]


@pytest.mark.parametrize(("spec", "refusal"), REFUSALS)
def test_a_pod_is_refused(spec: Json, refusal: str) -> None:
    made = down(upper_pod(**spec), PROFILE)
    assert made.refusal.startswith(refusal)
    assert (made.object, made.tokens) == ({}, ())


def test_namespaces_cannot_be_selected_by_their_labels() -> None:
    refusal = down(affine(labelSelector={}, namespaceSelector={"matchLabels": {"a": "b"}}), PROFILE).refusal
    assert "namespaceSelector must be empty: list the namespaces in spec.affinity.podAffinity." in refusal


@pytest.mark.parametrize(
    ("metadata", "refusal"),
    [
        ({"name": ""}, "metadata.name must not be empty"),
        ({"uid": None}, "metadata.uid must not be empty"),
        ({"labels": {"a": None}}, "metadata.labels['a'] must be a string"),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, "metadata.annotations may not contain"),
    ],
)
def test_metadata_is_refused(metadata: Json, refusal: str) -> None:
    pod = upper_pod()
    pod["metadata"] |= metadata
    assert down(pod, PROFILE).refusal.startswith(refusal)


def test_a_pod_that_follows_has_no_changes() -> None:
    assert changed(FULL, lower_pod(FULL)).pod == {}


def test_labels_and_annotations_follow_and_those_of_the_lower_side_stay() -> None:
    live = lower_pod(FULL)
    live["metadata"]["labels"]["zone"] = "a"
    live["metadata"]["annotations"]["cni"] = "10.0.0.1"
    upper = copied(FULL)
    upper["metadata"] |= {"labels": {"app": "new", "example.dev/owner": "x"}, "annotations": {}}
    patch = changed(upper, live).pod
    assert patch == {
        "metadata": {
            "labels": {"app": "new", "pod-template-hash": None},
            "annotations": {
                "note": None,
                "example.dev/given-labels": "app",
                "example.dev/given-annotations": None,
            },
        }
    }
    after = merged(live, patch)
    assert (after["metadata"]["labels"]["zone"], after["metadata"]["annotations"]["cni"]) == ("a", "10.0.0.1")
    assert changed(upper, after).pod == {}


def test_changed_marks_are_mended_but_a_pod_of_another_uid_is_left_alone() -> None:
    live = lower_pod(FULL)
    live["metadata"]["labels"]["example.dev/namespace"] = "other"
    assert changed(FULL, live).pod == {"metadata": {"labels": {"example.dev/namespace": "shop"}}}
    again = copied(FULL)
    again["metadata"]["uid"] = "u-again"
    assert changed(again, live).pod == {}


def test_images_deadline_tolerations_and_gates_follow() -> None:
    live = lower_pod(FULL)
    live["spec"]["containers"].append({"name": "injected", "image": "proxy:1"})
    live["spec"]["tolerations"].append({"key": "not-ready", "operator": "Exists"})
    live["spec"]["schedulingGates"].append({"name": "lower/own"})
    upper = copied(FULL)
    upper["spec"]["containers"][0]["image"] = "web:2"
    upper["spec"]["activeDeadlineSeconds"] = 60
    upper["spec"]["tolerations"] = [{"key": "fast", "operator": "Exists", "tolerationSeconds": 5}, {"key": "more"}]
    upper["spec"]["schedulingGates"] = []
    patch = changed(upper, live).pod
    spec = patch["spec"]
    assert set(spec) == {"containers", "activeDeadlineSeconds", "tolerations", "schedulingGates"}
    assert [each["image"] for each in spec["containers"]] == ["web:2", "proxy:1"]
    assert spec["containers"][0] == {**live["spec"]["containers"][0], "image": "web:2"}
    assert spec["activeDeadlineSeconds"] == 60
    assert spec["tolerations"] == [
        {"key": "fast", "operator": "Exists", "tolerationSeconds": 5},
        {"key": "not-ready", "operator": "Exists"},
        {"key": "more"},
    ]
    assert spec["schedulingGates"] == [{"name": "lower/own"}]
    assert changed(upper, merged(live, patch)).pod == {}


def test_a_deadline_is_never_extended() -> None:
    live = lower_pod(upper_pod(activeDeadlineSeconds=10))
    assert changed(upper_pod(activeDeadlineSeconds=20), live).pod == {}
    assert changed(upper_pod(), live).pod == {}


EPHEMERAL: Json = {
    "name": "debugger",
    "image": "busybox",
    "targetContainerName": "web",
    "env": [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "password", "key": "p"}}},
    ],
    "securityContext": {"privileged": True},
    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    "stdin": True,
    "ports": [{"containerPort": 1}],
    "resources": {"limits": {"cpu": "1"}},
    "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
}


def test_ephemeral_containers_are_added_and_never_created_with_the_pod() -> None:
    upper = copied(FULL)
    upper["spec"]["ephemeralContainers"] = [EPHEMERAL]
    assert "ephemeralContainers" not in lower(upper)["spec"]
    live = lower_pod(FULL)
    live["spec"]["ephemeralContainers"] = [{"name": "own", "image": "own:1"}]
    patch = changed(upper, live).ephemeral
    assert changed(upper, live).pod == {}
    own, added = patch["spec"]["ephemeralContainers"]
    assert own == {"name": "own", "image": "own:1"}
    assert set(added) == set(EPHEMERAL) - {"ports", "resources", "lifecycle"}
    assert added["securityContext"] == {"privileged": True}
    values = {each["name"]: each for each in added["env"]}
    assert values["NAME"]["value"] == "web-0"
    assert values["PASSWORD"]["valueFrom"]["secretKeyRef"]["name"] == name("Secret", "password")
    assert values["KUBERNETES_SERVICE_HOST"]["value"] == "plane.example.dev"
    after = merged(live, patch)
    assert changed(upper, after).is_current
    # They are never removed or changed: Kubernetes refuses both.
    assert changed(FULL, after).ephemeral == {}
    upper["spec"]["ephemeralContainers"][0]["image"] = "other"
    assert changed(upper, after).ephemeral == {}


def test_a_pod_with_refused_ephemeral_containers_is_translated_without_them() -> None:
    pod = upper_pod(ephemeralContainers=[{"name": "d", "envFrom": [{"secretRef": {"name": ""}}]}])
    made = down(pod, PROFILE)
    assert made.refusal == ""
    assert made.ephemeral_refusal == "spec.ephemeralContainers[0].envFrom[0].secretRef.name must name a Secret"
    assert (changed(pod, lower_pod(pod)).ephemeral, changed(pod, lower_pod(pod)).is_current) == ({}, False)


def test_a_resize_follows_and_what_the_lower_side_has_added_stays() -> None:
    upper = copied(FULL)
    live = lower_pod(FULL)
    live["spec"]["containers"][0]["resources"]["limits"] |= {"memory": "1Gi", "example.com/gpu": "1"}
    live["spec"]["containers"].insert(0, {"name": "injected", "resources": {"requests": {"cpu": "1"}}})
    assert changed(upper, live).is_current
    upper["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "200m", "memory": "64Mi", "example.com/gpu": "2"},
        "limits": {"cpu": "2"},
    }
    upper["spec"]["resources"] = {"limits": {"cpu": 3}}
    found = changed(upper, live)
    assert (found.pod, found.ephemeral, found.is_current) == ({}, {}, False)
    injected, web = found.resize["spec"]["containers"]
    assert injected == live["spec"]["containers"][0]
    assert web["resources"] == {
        "requests": {"cpu": "200m", "memory": "64Mi"},
        "limits": {"cpu": "2", "memory": "1Gi", "example.com/gpu": "1"},
    }
    assert web["image"] == "web:1"
    assert found.resize["spec"]["resources"] == {"limits": {"cpu": 3}}
    assert "initContainers" not in found.resize["spec"]
    assert changed(upper, merged(live, found.resize)).is_current


@pytest.mark.parametrize("given", [{}, {"imagePullSecrets": []}])
def test_a_pod_without_pull_secrets_gets_none_of_the_lower_service_account(given: Json) -> None:
    assert lower(upper_pod(**given))["spec"]["imagePullSecrets"] == [{"name": ""}]
