"""Who may do what, as `tenantry explain who-can` tells it and as the API server does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from hypothesis import strategies as st

from tenantry.api.errors import Forbidden
from tenantry.api.kubernetes import RBAC_GROUP, Namespace
from tenantry.kube.client import Client
from tenantry.local.cluster import LocalCluster
from tenantry.views.access import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES, who_can
from tenantry.world.explain.access import PolicyRule, RbacSubject, RequestedAccess
from testkit.api import Api, until
from testkit.draws import drawn, one, some
from testkit.people import as_person
from testkit.trees import Trees

pytest_plugins = ["testkit.fixtures"]

Json = dict[str, Any]

VERBS = ("get", "list", "create", "approve")
QUESTIONS = [
    (verb, resource, name)
    for verb in ("get", "create", "approve")
    for resource in ("pods", "pods/log", "deployments.apps", "roles")
    for name in ("", "web")
]
ROLE_COUNT, BINDING_COUNT = 8, 12


def listed(*values: str) -> st.SearchStrategy[list[str]]:
    """Return short lists of them."""
    return st.lists(one(*values), min_size=1, max_size=3, unique=True)


RULE = some(resourceNames=listed("web", "other")).flatmap(
    lambda names: st.fixed_dictionaries(
        {
            "verbs": listed(*VERBS, "*"),
            "apiGroups": listed("", "apps", RBAC_GROUP, "*"),
            "resources": listed("pods", "pods/log", "deployments", "*/log", "roles", "*"),
        }
    ).map(lambda rule: {**rule, **names})
)
ROLE = st.lists(RULE, max_size=2)
# A draw may be of roles without a rule, or give every subject the admin's; the first role and a stranger are not drawn.
FIRST_ROLE: list[Json] = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]


def subjects(namespace: str) -> list[RbacSubject]:
    """Return all subjects of a test: those that bindings name, and at the end a stranger to all bindings."""
    return [*bound_subjects(namespace), RbacSubject(kind="User", name=f"{namespace}-stranger")]


def bound_subjects(namespace: str) -> list[RbacSubject]:
    """Return the subjects that bindings of a test name."""
    return [
        *(RbacSubject(kind="User", name=f"{namespace}-u{number}") for number in range(3)),
        *(RbacSubject(kind="Group", name=f"{namespace}-g{number}") for number in range(2)),
        *(RbacSubject(kind="ServiceAccount", name=f"s{number}", namespace=namespace) for number in range(2)),
    ]


def written(subject: RbacSubject) -> Json:
    """Return a subject as in a binding."""
    group = {} if subject.namespace else {"apiGroup": RBAC_GROUP}
    return (
        {**msgspec.to_builtins(subject), **group}
        if subject.namespace
        else {
            "kind": subject.kind,
            "name": subject.name,
            **group,
        }
    )


@pytest_asyncio.fixture
async def random_access(api: Api, name: str) -> AsyncGenerator[None]:
    """A namespace with random roles and bindings, and some of the whole cluster."""
    number = random.randrange(2**32)
    print(f"seed {number}")
    chance = random.Random(number)
    known = bound_subjects(name)
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    for index, rules in enumerate([FIRST_ROLE, *drawn(ROLE, 2 * ROLE_COUNT, number)[: ROLE_COUNT - 1]]):
        await api.create(ROLES, {"metadata": {"name": f"r{index}"}, "rules": rules}, name)
        await api.create(CLUSTER_ROLES, {"metadata": {"name": f"{name}-r{index}"}, "rules": rules[:1]})
    for index in range(BINDING_COUNT):
        who = [written(each) for each in chance.sample(known, chance.randrange(1, 4))]
        is_wide, is_cluster_role = index % 4 == 3, index % 2 == 1
        stem = chance.randrange(ROLE_COUNT) if index else 0
        role = (
            {"kind": "ClusterRole", "name": f"{name}-r{stem}"}
            if is_cluster_role
            else {"kind": "Role", "name": f"r{stem}"}
        )
        value = {
            "metadata": {"name": f"{name}-b{index}"},
            "roleRef": {"apiGroup": RBAC_GROUP, **role},
            "subjects": who,
        }
        await api.create(CLUSTER_BINDINGS if is_wide else BINDINGS, value, "" if is_wide else name)
    yield
    for index in range(BINDING_COUNT):
        await api.delete(CLUSTER_BINDINGS, f"{name}-b{index}")
    for index in range(ROLE_COUNT):
        await api.delete(CLUSTER_ROLES, f"{name}-r{index}")
    await api.delete(Namespace.resource, name)


async def asked(api: Api, subject: RbacSubject, question: tuple[str, str, str], namespace: str) -> bool:
    """Return what the API server says, of one subject alone."""
    verb, resource, name = question
    plural, _, subresource = resource.partition("/")
    plural, _, group = plural.partition(".")
    group = RBAC_GROUP if plural == "roles" else group
    who: Json = {"user": subject.name}
    if subject.kind == "Group":
        who = {"user": "no-user-of-this-name", "groups": [subject.name]}
    elif subject.namespace:
        who = {"user": f"system:serviceaccount:{subject.namespace}:{subject.name}"}
    attributes = {"verb": verb, "group": group, "resource": plural, "subresource": subresource}
    spec = {**who, "resourceAttributes": {**attributes, "name": name, "namespace": namespace}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = await api.client.request("POST", path, body=msgspec.json.encode(body))
    return bool(msgspec.json.decode(answer)["status"]["allowed"])


async def told(client: Client, question: tuple[str, str, str], namespace: str) -> set[RbacSubject]:
    """Return those of the test's own who may, as we say."""
    access = await who_can(client, *question, namespace)
    return {each.subject for each in access.holders} & set(subjects(namespace))


async def compare(client: Client, api: Api, namespace: str, known: list[RbacSubject]) -> None:
    """Ask every question of both until they agree: the authorizer learns of a binding a moment after it is made."""
    for question in QUESTIONS:

        async def agree(question: tuple[str, str, str] = question) -> bool:
            answers = await asyncio.gather(*(asked(api, each, question, namespace) for each in known))
            may = {each for each, answer in zip(known, answers, strict=True) if answer}
            return await told(client, question, namespace) & set(known) == may

        await until(agree, f"both say the same of {question}")


@pytest.mark.usefixtures("random_access")
async def test_it_agrees_with_the_api_server_about_random_roles(api: Api, name: str) -> None:
    """X07: who-can says of users, groups and service accounts what a SubjectAccessReview says of each."""
    await compare(api.client, api, name, subjects(name))
    counts = [len(await told(api.client, question, name)) for question in QUESTIONS]
    assert any(counts), "a subject has a right"
    assert max(counts) < len(subjects(name)), "no right is of every subject"


@pytest.mark.usefixtures("random_access")
async def test_who_may_not_read_cluster_roles_is_told_the_same_of_the_namespace(
    api: Api, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """X07: an owner cannot read ClusterRoles; the API server names the subjects that have one in the namespace."""
    owner = f"{name}-owner"
    value = {
        "metadata": {"name": "owner"},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": RBAC_GROUP, "kind": "User", "name": owner}],
    }
    await api.create(BINDINGS, value, name)
    # Of others they are not told what they may in the whole cluster.
    bound = [
        msgspec.convert({**s, "namespace": s.get("namespace", "")}, RbacSubject)
        for each in await api.list(BINDINGS, name)
        for s in each.get("subjects") or ()
        if each["metadata"]["name"] != "owner" and each["roleRef"]["kind"] == "ClusterRole"
    ]
    async with as_person(tenancy, tmp_path, owner) as person:

        async def in_force() -> bool:
            try:
                await person.list(BINDINGS, name)
            except Forbidden:
                return False
            return True

        await until(in_force, "the owner may read bindings")
        with pytest.raises(Forbidden):
            await person.list(CLUSTER_ROLES)
        await compare(person.client, api, name, list(dict.fromkeys(bound)))
        access = await who_can(person.client, "get", "pods", "", name)
    assert any("cluster-wide" in note for note in access.notes)
    assert owner in {each.subject.name for each in access.holders}


@pytest.mark.usefixtures("operator")
async def test_inherited_bindings_and_owners_say_so(api: Api, name: str) -> None:
    """X07: who comes from a namespace above is told with where from; owners are called so."""
    await api.make_tenant(name)
    await api.create(
        ROLES,
        {"metadata": {"name": "looker"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
        name,
    )
    await api.create(
        BINDINGS,
        {
            "metadata": {"name": "look"},
            "roleRef": {"apiGroup": RBAC_GROUP, "kind": "Role", "name": "looker"},
            "subjects": [{"apiGroup": RBAC_GROUP, "kind": "User", "name": "bob"}],
        },
        name,
    )
    child = await Trees(api).make(name, "web")

    async def inherited() -> bool:
        access = await who_can(api.client, "get", "pods", "", child)
        return ("bob", name) in {(each.subject.name, each.inherited_from) for each in access.holders}

    await until(inherited, "the workspace has its parent's people")
    access = await who_can(api.client, "get", "pods", "", name)
    assert [each.is_owner for each in access.holders if each.subject.name == "alice"] == [True]
    assert [each.is_owner for each in access.holders if each.subject.name == "bob"] == [False]


async def test_a_list_of_namespaces_is_in_none_of_them(
    api: Api, tenancy: LocalCluster, name: str, tmp_path: Path
) -> None:
    """X07: a role in a namespace gives that one, and no list, as its user finds out."""
    bob = f"{name}-bob"
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    value = {
        "metadata": {"name": "view"},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": RBAC_GROUP, "kind": "User", "name": bob}],
    }
    await api.create(BINDINGS, value, name)
    async with as_person(tenancy, tmp_path, bob) as person:

        async def in_force() -> bool:
            try:
                await person.get(Namespace.resource, name)
            except Forbidden:
                return False
            return True

        await until(in_force, "bob reads the namespace")
        with pytest.raises(Forbidden):
            await person.list(Namespace.resource)
    may = {
        verb: bob in {each.subject.name for each in (await who_can(api.client, verb, "namespaces", "", name)).holders}
        for verb in ("get", "list", "watch")
    }
    assert may == {"get": True, "list": False, "watch": False}


async def test_a_user_without_rights_learns_nothing(api: Api, tenancy: LocalCluster, name: str, tmp_path: Path) -> None:
    """X07: who may not read the bindings of a namespace learns nothing of it, not even whether it is there."""
    await api.create(Namespace.resource, {"metadata": {"name": name}})
    said: list[str] = []
    async with as_person(tenancy, tmp_path, "mallory") as mallory:
        for namespace in (name, "nowhere"):
            with pytest.raises(Forbidden) as refused:
                await who_can(mallory.client, "get", "secrets", "", namespace)
            said.append(str(refused.value).replace(namespace, "x"))
    assert said[0] == said[1]
    await api.delete(Namespace.resource, name)


@pytest.mark.parametrize(
    ("rule", "wanted", "allows"),
    [
        ({"resources": ["pods"]}, {"resource": "pods/log"}, False),
        ({"resources": ["*/log"]}, {"resource": "pods/log"}, True),
        ({"resources": ["*/log"]}, {"resource": "pods"}, False),
        ({"resources": ["pods"], "resourceNames": ["web"]}, {"resource": "pods"}, False),
        ({"resources": ["pods"], "resourceNames": ["web"]}, {"resource": "pods", "name": "web"}, True),
        ({"resources": ["*"], "apiGroups": None}, {"resource": "pods"}, False),
    ],
)
def test_rules_of_roles(rule: Json, wanted: Json, *, allows: bool) -> None:
    """X07."""
    known = msgspec.convert({"verbs": ["get"], "apiGroups": [""], **rule}, PolicyRule)
    assert known.allows(msgspec.convert({"verb": "get", "group": "", **wanted}, RequestedAccess)) is allows
