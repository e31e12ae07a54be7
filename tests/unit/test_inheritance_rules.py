"""Which objects children inherit, in which way, and what of them: tables of the pure rules."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tenantry.api.kubernetes import LimitRange, NetworkPolicy, RoleBinding
from tenantry.api.model import Resource
from tenantry.api.subnamespace import (
    Inheritance,
    InheritanceMode,
    Mode,
    OtherInheritance,
    SubnamespaceSpec,
)
from tenantry.engine.observed import Inheritable, observe
from tenantry.world import inheritance
from tenantry.world.inheritance import CONFIG_MAPS, ROLES, SECRETS, SERVICE_ACCOUNTS

NONE, COPY, SYNC = InheritanceMode.NONE, InheritanceMode.COPY, InheritanceMode.SYNC
WIDGETS = Resource("example.com", "v1", "widgets", "Widget", owned=inheritance.WHOLE)
Json = dict[str, Any]


def spec(mode: Mode, each: InheritanceMode) -> SubnamespaceSpec:
    """Return the spec of a child that inherits every kind in one way."""
    return SubnamespaceSpec(
        mode=mode,
        inheritance=Inheritance(
            roles=each,
            role_bindings=each,
            network_policies=each,
            limit_ranges=each,
            secrets=each,
            config_maps=each,
            service_accounts=each,
            others=(OtherInheritance(resource=WIDGETS.full_name, mode=each),),
        ),
    )


PEOPLE = (ROLES, RoleBinding.resource, NetworkPolicy.resource, SERVICE_ACCOUNTS)
THINGS = (SECRETS, CONFIG_MAPS, LimitRange.resource, WIDGETS)
MODES = [
    # mode of the child, what its spec says, what lets people in, all else
    (Mode.WORKSPACE, NONE, NONE, NONE),
    (Mode.WORKSPACE, COPY, COPY, COPY),
    (Mode.WORKSPACE, SYNC, SYNC, SYNC),
    (Mode.SUBTENANT, NONE, NONE, NONE),
    (Mode.SUBTENANT, COPY, NONE, COPY),
    (Mode.SUBTENANT, SYNC, NONE, COPY),
]


@pytest.mark.parametrize(("mode", "said", "people", "things"), MODES)
def test_a_subtenant_gets_copies_only_and_nothing_that_lets_people_in(
    mode: Mode, said: InheritanceMode, people: InheritanceMode, things: InheritanceMode
) -> None:
    """E05, E06: whatever came in behind admission's back."""
    given = spec(mode, said)
    assert {inheritance.mode_for(given, kind.full_name) for kind in PEOPLE} == {people}
    assert {inheritance.mode_for(given, kind.full_name) for kind in THINGS} == {things}


@pytest.mark.parametrize("kind", ["deployments.apps", "cronjobs.batch", "replicationcontrollers"])
@pytest.mark.parametrize("annotation", [None, "all", "team=red"])
def test_a_subtenant_gets_nothing_that_runs_pods(kind: str, annotation: str | None) -> None:
    """E05: a pod of the parent's would read the Secrets of the Subtenant."""
    given = Inheritance(others=(OtherInheritance(resource=kind, mode=COPY),))

    def verdict(mode: Mode) -> InheritanceMode:
        return inheritance.verdict(SubnamespaceSpec(mode=mode, inheritance=given), kind, annotation, lambda: LABELS)

    assert verdict(Mode.SUBTENANT) is NONE
    assert verdict(Mode.WORKSPACE) is COPY


LABELS = {"team": "red", "a.tree.tenantry.dev/depth": "1", "empty": ""}
VERDICTS = [
    # annotation, mode of the child, what its spec says, of a Secret, of a Role
    (None, Mode.WORKSPACE, NONE, NONE, NONE),
    (None, Mode.WORKSPACE, SYNC, SYNC, SYNC),
    ("none", Mode.WORKSPACE, SYNC, NONE, NONE),
    ("none", Mode.SUBTENANT, COPY, NONE, NONE),
    ("all", Mode.WORKSPACE, NONE, SYNC, SYNC),
    ("all", Mode.WORKSPACE, COPY, COPY, COPY),
    ("all", Mode.SUBTENANT, NONE, COPY, NONE),
    ("all", Mode.SUBTENANT, SYNC, COPY, NONE),
    ("team=red", Mode.WORKSPACE, NONE, SYNC, SYNC),
    ("team=blue", Mode.WORKSPACE, SYNC, NONE, NONE),
    ("team=red", Mode.SUBTENANT, NONE, COPY, NONE),
    ("a b c", Mode.WORKSPACE, SYNC, NONE, NONE),
]


@pytest.mark.parametrize(("annotation", "mode", "said", "secret", "role"), VERDICTS)
def test_the_annotation_of_an_object_decides_before_the_spec(
    annotation: str | None, mode: Mode, said: InheritanceMode, secret: InheritanceMode, role: InheritanceMode
) -> None:
    """E06: exceptions per object; an invalid one selects no child."""
    given = spec(mode, said)
    assert inheritance.verdict(given, "secrets", annotation, lambda: LABELS) is secret
    assert inheritance.verdict(given, ROLES.full_name, annotation, lambda: LABELS) is role


SELECTORS = [
    ("team", True),
    ("!team", False),
    ("!other", True),
    ("team=red", True),
    ("team==red", True),
    ("team!=red", False),
    ("other!=red", True),
    ("empty=", True),
    ("empty", True),
    ("team=", False),
    ("team in (red,blue)", True),
    ("team in (blue)", False),
    ("team notin (red, blue)", False),
    ("other notin (red)", True),
    ("team in ()", False),
    (" team = red , !other ", True),
    ("team=red,other=x", False),
    ("a.tree.tenantry.dev/depth=1", True),
    ("a.tree.tenantry.dev/depth in (1,2),team notin (green)", True),
]


@pytest.mark.parametrize(("text", "selects"), SELECTORS)
def test_selectors_are_kubernetes_own(text: str, selects: bool) -> None:  # noqa: FBT001 - a column of the table
    """E06: equality-based and set-based, as kubectl -l takes them."""
    requirements = inheritance.parse_selector(text)
    assert requirements is not None
    assert inheritance.matches(requirements, LABELS) is selects


@pytest.mark.parametrize(
    "text", ["", ",", "a=b=c", "a in b", "a in (b", "in (b)", "=a", "a b", "a,", "-a", "a=-", "a/b/c", "a>1"]
)
def test_an_invalid_selector_is_reported_and_selects_no_child(text: str) -> None:
    """E06: a typing error must not give a Secret to all children."""
    assert not inheritance.is_valid(text)
    assert not inheritance.selects(text, lambda: LABELS)


NATURES: list[tuple[Resource, Json, Json, bool]] = [
    (SECRETS, {"type": "Opaque"}, {"name": "a"}, True),
    (SECRETS, {}, {"name": "a"}, True),
    (SECRETS, {"type": "kubernetes.io/dockerconfigjson"}, {"name": "a"}, True),
    (SECRETS, {"type": "kubernetes.io/service-account-token"}, {"name": "a"}, False),
    (SECRETS, {"type": "bootstrap.kubernetes.io/token"}, {"name": "a"}, False),
    (SECRETS, {"type": "helm.sh/release.v1"}, {"name": "a"}, False),
    (CONFIG_MAPS, {}, {"name": "kube-root-ca.crt"}, False),
    (SECRETS, {}, {"name": "kube-root-ca.crt"}, True),
    (SERVICE_ACCOUNTS, {}, {"name": "default"}, False),
    (ROLES, {}, {"name": "default"}, True),
    (CONFIG_MAPS, {}, {"name": "a", "ownerReferences": [{"uid": "u", "controller": True}]}, False),
    (CONFIG_MAPS, {}, {"name": "a", "ownerReferences": [{"uid": "u"}]}, True),
    (ROLES, {}, {"name": "a", "labels": {"app.kubernetes.io/managed-by": "tenantry"}}, False),
    (ROLES, {}, {"name": "a", "labels": {"app.kubernetes.io/managed-by": "Helm"}}, True),
    (
        ROLES,
        {},
        {"name": "a", "labels": {"app.kubernetes.io/managed-by": "tenantry", "tenantry.dev/inherited-from": "up"}},
        True,
    ),
    (WIDGETS, {"spec": {}}, {"name": "a"}, True),
]


@pytest.mark.parametrize(("resource", "fields", "metadata", "heritable"), NATURES)
def test_what_programs_make_for_themselves_is_never_inherited(
    resource: Resource,
    fields: Json,
    metadata: Json,
    heritable: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """E06: tokens, what controllers made, what every namespace has, and what Tenantry made but for copies."""
    value = {**fields, "metadata": {"namespace": "n", "uid": "u", "resourceVersion": "1", **metadata}}
    assert isinstance(observe(resource, msgspec.json.encode(value)), Inheritable) is heritable


def _likeness(resource: Resource, value: Json, **metadata: object) -> bytes:
    whole = {"metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", **metadata}, **value}
    seen = observe(resource, msgspec.json.encode(whole))
    assert isinstance(seen, Inheritable)
    return seen.likeness


SAME = [
    # what may differ between a source and its copy
    {"name": "a", "namespace": "other", "uid": "x", "resourceVersion": "9"},
    {"labels": {"tenantry.dev/inherited-from": "n", "app.kubernetes.io/managed-by": "tenantry", "team": "x"}},
    {
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
            "tenantry.dev/suspended-subjects": "[]",
        }
    },
    {"annotations": {"argocd.argoproj.io/tracking-id": "t", "meta.helm.sh/release-name": "r"}},
    {"managedFields": [{"manager": "x"}], "generation": 3, "finalizers": ["example.com/keep"]},
]


@pytest.mark.parametrize("metadata", SAME, ids=str)
def test_a_copy_is_like_its_source_whatever_is_its_own(metadata: Json) -> None:
    """E06: identity, protected marks and the marks of deployment tools are no difference."""
    value = {"data": {"a": "b"}, "binaryData": {"c": "ZA=="}}
    base: Json = {"labels": {"team": "x"}}
    assert _likeness(CONFIG_MAPS, value, **base) == _likeness(CONFIG_MAPS, value, **{**base, **metadata})


DIFFERENT: list[tuple[Resource, Json]] = [
    (CONFIG_MAPS, {"data": {"a": "c"}}),
    (CONFIG_MAPS, {"data": {"a": "b"}, "immutable": True}),
    (CONFIG_MAPS, {"data": {"a": "b"}, "binaryData": {"c": "ZA=="}}),
    (CONFIG_MAPS, {"data": {"a": "b"}, "metadata": {"name": "a", "namespace": "n", "labels": {"team": "y"}}}),
    (CONFIG_MAPS, {"data": {"a": "b"}, "metadata": {"name": "a", "namespace": "n", "annotations": {"note": "y"}}}),
]


@pytest.mark.parametrize(("resource", "value"), DIFFERENT, ids=str)
def test_whatever_else_differs_is_a_difference(resource: Resource, value: Json) -> None:
    """E06: every field, and the labels and annotations of people."""
    assert _likeness(resource, {"data": {"a": "b"}}) != _likeness(resource, value)


def test_a_service_accounts_tokens_stay_where_they_are() -> None:
    """E06: what it pulls images with, and whether it mounts a token, come down."""
    value = {"secrets": [{"name": "token"}], "imagePullSecrets": [{"name": "r"}], "automountServiceAccountToken": False}
    assert inheritance.content("serviceaccounts", value) == {
        "automountServiceAccountToken": False,
        "imagePullSecrets": [{"name": "r"}],
    }


def test_a_bindings_service_accounts_keep_their_namespace() -> None:
    """E06: a binding gives in the child what it gives in the parent, to the same accounts."""
    subjects = [{"kind": "ServiceAccount", "name": "robot", "namespace": "parent"}]
    value = {"apiVersion": "v1", "kind": "RoleBinding", "metadata": {}, "roleRef": {"name": "x"}, "subjects": subjects}
    content = inheritance.content(RoleBinding.resource.full_name, value)
    assert content == {"roleRef": {"name": "x"}, "subjects": subjects}


MARKS = [
    ("team", True),
    ("example.com/x", True),
    ("tenantry.dev/inherit", True),
    ("tenantry.dev/tenant", False),
    ("acme.tenantry.dev/team", False),
    ("app.kubernetes.io/managed-by", False),
    ("app.kubernetes.io/name", True),
    ("kubectl.kubernetes.io/last-applied-configuration", False),
    ("kustomize.toolkit.fluxcd.io/name", False),
]


@pytest.mark.parametrize(("key", "carried"), MARKS)
def test_peoples_marks_go_with_an_object_and_protected_ones_do_not(
    key: str,
    carried: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """E06: labels and annotations."""
    assert (key in inheritance.carried({key: "x"})) is carried


@pytest.mark.parametrize(
    ("kind", "may"),
    [
        ("widgets.example.com", True),
        ("deployments.apps", True),
        ("services", True),
        ("pods", False),
        ("secrets", False),
        ("roles.rbac.authorization.k8s.io", False),
        ("leases.coordination.k8s.io", False),
        ("subnamespaces.tenantry.dev", False),
        ("xsecrets", True),
    ],
)
def test_an_administrator_may_allow_what_no_controller_makes(
    kind: str,
    may: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """E06: checked again behind admission's back."""
    assert inheritance.may_be_allowed(kind) is may
