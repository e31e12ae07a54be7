"""Fields of pods that cannot travel to another cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tenantry.mirror.places import NamespacePairs
from tenantry.mirror.podlimits import PodLimits, has_injected, limited, unfit
from tenantry.mirror.pods import down
from tenantry.mirror.shapes import NotTranslated
from testkit.mirroredpods import NODE, PAIRED, PAIRS, bound_pod, profile_of
from testkit.mirroring import copied

Json = dict[str, Any]

LIMITS = PodLimits()
MOUNTS = [
    {"name": "data", "mountPath": "/data"},
    {"name": "kube-api-access-x7f2p", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
]
INJECTED: Json = {
    "name": "kube-api-access-x7f2p",
    "projected": {
        "defaultMode": 420,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ],
    },
}


def uid(pod: Json) -> Json:
    """Return a pod as its API server has it."""
    return {**pod, "metadata": {**pod["metadata"], "uid": "u"}}


def with_sources(*sources: Json, name: str = "a") -> Json:
    return {"volumes": [{"name": name, "projected": {"sources": list(sources)}}]}


TOKEN: Json = {"serviceAccountToken": {"path": "token"}}


def token(audience: object) -> Json:
    return {"serviceAccountToken": {"path": "token", "audience": audience}}


REFUSED: list[tuple[Json, str]] = [
    ({"hostNetwork": True}, "spec.hostNetwork"),
    ({"hostPID": True}, "spec.hostPID"),
    ({"hostIPC": True}, "spec.hostIPC"),
    ({"hostUsers": True}, "spec.hostUsers"),
    ({"resourceClaims": [{"name": "gpu"}]}, "spec.resourceClaims"),
    ({"containers": [{}, {"ports": [{}, {"hostPort": 80}]}]}, "spec.containers[1].ports[1].hostPort"),
    ({"initContainers": [{"ports": [{"hostPort": 80}]}]}, "spec.initContainers[0].ports[0].hostPort"),
    ({"volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "hostPath": {}}]}, "spec.volumes[1].hostPath"),
    ({"volumes": [{"name": "a", "persistentVolumeClaim": {}}]}, "spec.volumes[0].persistentVolumeClaim"),
    ({"volumes": [{"name": "a", "ephemeral": {}}]}, "spec.volumes[0].ephemeral"),
    ({"volumes": [{"name": "a", "configMap": {"name": "kube-root-ca.crt"}}]}, "spec.volumes[0].configMap.name"),
    (with_sources({"configMap": {"name": "kube-root-ca.crt"}}), "spec.volumes[0].projected.sources[0].configMap.name"),
    ({"volumes": [{"name": "a", "nfs": {}}]}, "spec.volumes[0].nfs"),
    ({"volumes": [{"name": "a", "image": {}}]}, "spec.volumes[0].image"),
    ({"volumes": [{"name": "a", "aKindOfTomorrow": {}}]}, "spec.volumes[0].aKindOfTomorrow"),
    (with_sources({"secret": {}}, TOKEN), "spec.volumes[0].projected.sources[1].serviceAccountToken"),
    (with_sources({"podCertificate": {}}), "spec.volumes[0].projected.sources[0].podCertificate"),
    # The name alone makes no injected volume: users choose it.
    (
        with_sources(TOKEN, {"secret": {"name": "keys"}}, name="kube-api-access-a"),
        "spec.volumes[0].projected.sources[0].serviceAccountToken",
    ),
    (
        with_sources({"serviceAccountToken": {"audience": "vault"}}, name="kube-api-access-a"),
        "spec.volumes[0].projected.sources[0].serviceAccountToken",
    ),
    (with_sources(TOKEN, TOKEN, name="kube-api-access-a"), "spec.volumes[0].projected.sources[0]"),
    (with_sources(token("vault")), "spec.volumes[0].projected.sources[0].serviceAccountToken.audience"),
    (with_sources(token("")), "spec.volumes[0].projected.sources[0].serviceAccountToken.audience"),
]


@pytest.mark.parametrize(("spec", "refused"), REFUSED)
def test_a_pod_that_cannot_travel_is_refused_with_the_path(spec: Json, refused: str) -> None:
    found = unfit(spec, LIMITS)
    assert found.startswith(refused)
    assert " may not be " in found
    whole: Json = {"containers": [{"name": "c", "image": "i"}], **spec}
    pod = uid(bound_pod(**whole))
    assert down(pod, PAIRED).refusal == found
    with pytest.raises(NotTranslated):
        limited(pod, LIMITS)


PASSED: list[Json] = [
    {"hostNetwork": False, "hostPID": False, "hostUsers": False},
    {"containers": [{"ports": [{"containerPort": 80, "hostPort": 0}]}]},
    {"volumes": [{"name": each, each: {}} for each in LIMITS.volumes]},
    with_sources({"secret": {}}, {"configMap": {}}, {"downwardAPI": {}}),
    {"volumes": [INJECTED]},
    {"volumes": "junk", "containers": [7], "initContainers": None},
]


@pytest.mark.parametrize("spec", PASSED)
def test_a_pod_that_can_travel_passes(spec: Json) -> None:
    assert unfit(spec, LIMITS) == ""


ALLOWING = PodLimits(audiences=("vault", "bank"), allowed_by="the settings")


@pytest.mark.parametrize(
    ("sources", "refused"),
    [
        ([token("vault"), {"secret": {"name": "a"}}, token("bank")], ""),
        ([token("vault")] * 4, ""),
        ([token("vault")] * 5, "spec.volumes may not have so many"),
        (
            [token("vault"), token("cashier")],
            "spec.volumes[0].projected.sources[1].serviceAccountToken.audience may not",
        ),
        ([TOKEN], "spec.volumes[0].projected.sources[0].serviceAccountToken.audience may not be empty"),
        ([token(None)], "spec.volumes[0].projected.sources[0].serviceAccountToken.audience may not be empty"),
        ([token("vaul")], "spec.volumes[0].projected.sources[0].serviceAccountToken.audience may not"),
        ([token("vault,bank")], "spec.volumes[0].projected.sources[0].serviceAccountToken.audience may not"),
        ([token(["vault"])], "spec.volumes[0].projected.sources[0].serviceAccountToken.audience may not"),
    ],
)
def test_tokens_travel_for_allowed_audiences_alone(sources: list[Json], refused: str) -> None:
    spec = {"volumes": [*with_sources(*sources)["volumes"], INJECTED]}
    found = unfit(spec, ALLOWING)
    assert (found.startswith(refused) and bool(found)) if refused else not found
    assert "have an administrator add it to the settings" in unfit(with_sources(token("cashier")), ALLOWING)


def test_a_token_is_short_lived_and_in_a_secret_that_no_pod_names_otherwise() -> None:
    """A Secret of the user may have the name of the pod."""
    profile = profile_of(NamespacePairs(PAIRS), ALLOWING)
    source: Json = {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 86400}}
    made = down(uid(bound_pod(**with_sources(source))), profile)
    assert [(each.audience, each.seconds, each.path) for each in made.tokens] == [("vault", 600, "vault")]
    (projected,) = made.object["spec"]["volumes"][0]["projected"]["sources"]
    assert projected["secret"]["name"] == profile.lower_name("Token", "shop", "web") != "web"
    assert made.object["spec"]["automountServiceAccountToken"] is False


def test_fields_of_the_upper_side_are_dropped() -> None:
    dropped: Json = {
        "nodeSelector": {"a": "b"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
        "topologySpreadConstraints": [{"maxSkew": 1}],
        "priority": 7,
        "priorityClassName": "high",
        "preemptionPolicy": "Never",
        "schedulerName": "own",
        "runtimeClassName": "gvisor",
        "serviceAccountName": "shopkeeper",
        "serviceAccount": "shopkeeper",
    }
    made = down(uid(bound_pod(**dropped)), PAIRED)
    assert made.refusal == ""
    spec = made.object["spec"]
    assert not {"nodeName", *dropped} & set(spec)
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)


def test_the_injected_volume_is_dropped_with_its_mounts() -> None:
    container = {"name": "c", "image": "i", "volumeMounts": MOUNTS}
    volumes: list[Json] = [{"name": "data", "emptyDir": {}}, INJECTED]
    pod = uid(bound_pod(containers=[container], initContainers=[copied(container)], volumes=volumes))
    before = copied(pod)
    made = down(pod, PAIRED)
    spec = made.object["spec"]
    assert spec["volumes"] == [{"name": "data", "emptyDir": {}}]
    assert [each["volumeMounts"] for each in (*spec["containers"], *spec["initContainers"])] == [MOUNTS[:1]] * 2
    assert (made.needs, made.tokens) == (frozenset(), ())
    assert pod == before
    assert has_injected(pod["spec"], LIMITS)
    assert not has_injected(spec, LIMITS)


def test_a_pod_sees_what_the_upper_side_calls_it() -> None:
    fields = {
        "NAMESPACE": "metadata.namespace",
        "UID": "metadata.uid",
        "NODE": "spec.nodeName",
        "ACCOUNT": "spec.serviceAccountName",
    }
    env = [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]
    files = [{"path": "n", "fieldRef": {"fieldPath": "metadata.namespace"}}]
    volumes = [{"name": "info", "downwardAPI": {"items": files}}]
    containers = [{"name": "c", "image": "i", "env": env}]
    made = down(uid(bound_pod(containers=containers, volumes=volumes, serviceAccountName="shopkeeper")), PAIRED)
    lower = made.object
    values = {each["name"]: each["value"] for each in lower["spec"]["containers"][0]["env"]}
    assert values == {"NAMESPACE": "shop", "UID": "u", "NODE": NODE, "ACCOUNT": "shopkeeper"}
    (file,) = lower["spec"]["volumes"][0]["downwardAPI"]["items"]
    mark = file["fieldRef"]["fieldPath"].removeprefix("metadata.annotations['").removesuffix("']")
    assert lower["metadata"]["annotations"][mark] == "shop"
    assert (lower["metadata"]["namespace"], lower["metadata"]["name"]) == ("shop-below", "web")
