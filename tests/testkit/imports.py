"""Tenants of other tools, as these leave them in a cluster, and what the import makes of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from tenantry.api.model import Resource
from tenantry.world.imports import capsule, edgenet, kiosk, rancher
from tenantry.world.imports.objects import ImportSource

Json = dict[str, Any]


class ImportStory(NamedTuple):
    """A tenant of another tool.

    Args:
        source: The tool.
        tenant: The Tenant that it becomes.
        objects: (kind, object, namespace) of the tool.
        namespaces: Name to metadata; an owner reference gets the uid of the object of its name.
        quotas: Namespace to the share that it gets.
        full: A namespace whose share has no room for 7 CPUs.
        lost: What the plan must report.
        flags: Further flags of the command.
    """

    source: ImportSource
    tenant: str
    objects: tuple[tuple[Resource, Json, str], ...]
    namespaces: dict[str, Json]
    quotas: dict[str, Json]
    full: str
    lost: tuple[str, ...]
    flags: tuple[str, ...] = ()

    @property
    def all(self) -> set[str]:
        """Return the namespaces, with the core namespace."""
        return {self.tenant, *self.namespaces}


def _kind(source: ImportSource, kind: str) -> Resource:
    return next(each for each in source.kinds if each.kind == kind)


def _capsule() -> ImportStory:
    spec: Json = {
        "owners": [{"kind": "User", "name": "alice"}, {"kind": "Group", "name": "viewers", "clusterRoles": ["view"]}],
        "namespaceOptions": {"quota": 5, "additionalMetadata": {"labels": {"cost": "oil"}}},
        "resourceQuotas": {"scope": "Tenant", "items": [{"hard": {"requests.cpu": "8", "pods": "11"}}]},
        "networkPolicies": {
            "items": [
                {
                    "podSelector": {},
                    "policyTypes": ["Ingress", "Egress"],
                    "ingress": [
                        {"from": [{"namespaceSelector": {"matchLabels": {"capsule.clastix.io/tenant": "oil"}}}]}
                    ],
                    "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["192.168.0.0/16"]}}]}],
                }
            ]
        },
        "limitRanges": {"items": [{"limits": [{"type": "Container", "max": {"cpu": "7", "memory": "1Gi"}}]}]},
        "additionalRoleBindings": [
            {
                "clusterRoleName": "edit",
                "subjects": [{"kind": "Group", "name": "devs", "apiGroup": "rbac.authorization.k8s.io"}],
            }
        ],
        "containerRegistries": {"allowed": ["docker.io"]},
        "nodeSelector": {"pool": "oil"},
    }
    owner = {"apiVersion": "capsule.clastix.io/v1beta2", "kind": "Tenant", "name": "oil"}
    metadata: Json = {"labels": {"capsule.clastix.io/tenant": "oil", "cost": "oil"}, "ownerReferences": [owner]}
    names = ("oil-dev", "oil-production")
    return ImportStory(
        source=capsule.SOURCE,
        tenant="oil",
        objects=((_kind(capsule.SOURCE, "Tenant"), {"metadata": {"name": "oil"}, "spec": spec}, ""),),
        namespaces=dict.fromkeys(names, metadata),
        quotas={name: {"pods": "5", "requests.cpu": "4"} for name in names},
        full="oil-dev",
        lost=("lost: Capsule Tenant 'oil': spec.nodeSelector: not carried over",),
    )


def _kiosk() -> ImportStory:
    account: Json = {
        "metadata": {"name": "johns-account"},
        "spec": {
            "subjects": [{"kind": "User", "name": "john", "apiGroup": "rbac.authorization.k8s.io"}],
            "space": {"limit": 4, "templateInstances": [{"spec": {"template": "defaults"}}]},
        },
    }
    quota: Json = {
        "metadata": {"name": "johns"},
        "spec": {"account": "johns-account", "quota": {"hard": {"pods": "7", "requests.cpu": "4"}}},
    }
    owner = {"apiVersion": "config.kiosk.sh/v1alpha1", "kind": "Account", "name": "johns-account", "controller": True}
    metadata: Json = {"labels": {"kiosk.sh/account": "johns-account"}, "ownerReferences": [owner]}
    names = ("johns-account", "johns-space")
    return ImportStory(
        source=kiosk.SOURCE,
        tenant="johns-account",
        objects=((_kind(kiosk.SOURCE, "Account"), account, ""), (_kind(kiosk.SOURCE, "AccountQuota"), quota, "")),
        namespaces=dict.fromkeys(names, metadata),
        # Of seven pods, each namespace gets three, and the core namespace what is left.
        quotas={
            "johns-account": {"pods": "4", "requests.cpu": "2"},
            "johns-space": {"pods": "3", "requests.cpu": "2"},
        },
        full="johns-space",
        lost=("lost: kiosk Account 'johns-account': spec.space.templateInstances: not carried over",),
    )


def _rancher() -> ImportStory:
    limits = {"pods": "10", "requestsCpu": "6000m"}
    project: Json = {
        "metadata": {"name": "p-web42"},
        "spec": {
            "displayName": "Web Shop",
            "description": "the shop",
            "clusterName": "c-local",
            "resourceQuota": {"limit": limits, "usedLimit": {"pods": "4"}},
            "namespaceDefaultResourceQuota": {"limit": {"pods": "3", "requestsCpu": "1000m"}},
            "containerDefaultResourceLimit": {"requestsCpu": "50m", "limitsCpu": "500m"},
        },
    }
    bindings = [
        {"roleTemplateName": "project-owner", "userName": "u-carol", "userPrincipalName": "local://u-carol"},
        {"roleTemplateName": "project-member", "groupPrincipalName": "ldap_group://devs"},
    ]
    annotations = {"field.cattle.io/projectId": "c-local:p-web42"}
    own = '{"limit":{"pods":"5","requestsCpu":"2000m"}}'
    return ImportStory(
        source=rancher.SOURCE,
        tenant="web-shop",
        objects=(
            (_kind(rancher.SOURCE, "Project"), project, "c-local"),
            *(
                (
                    _kind(rancher.SOURCE, "ProjectRoleTemplateBinding"),
                    {"metadata": {"name": f"prtb-{number}"}, "projectName": "c-local:p-web42", **binding},
                    "c-local",
                )
                for number, binding in enumerate(bindings)
            ),
        ),
        namespaces={
            "shop-front": {"annotations": {**annotations, "field.cattle.io/resourceQuota": own}},
            "shop-back": {"annotations": annotations},
        },
        quotas={
            "shop-front": {"pods": "5", "requests.cpu": "2"},
            "shop-back": {"pods": "3", "requests.cpu": "1"},
        },
        full="shop-back",
        lost=("lost: Rancher Project 'c-local/p-web42': spec.description: not carried over",),
    )


def _edgenet() -> ImportStory:
    tenant: Json = {
        "metadata": {"name": "lip6-lab"},
        "spec": {
            "fullname": "Laboratory",
            "shortname": "lab",
            "contact": {"email": "dana@example.com", "firstname": "Dana", "lastname": "D.", "phone": "+33"},
            "enabled": True,
        },
    }
    quota: Json = {
        "metadata": {"name": "lip6-lab"},
        "spec": {
            "claim": {"initial": {"resourcelist": {"cpu": "8", "pods": "12"}}},
            "drop": {"spring": {"resourcelist": {"cpu": "2"}}},
        },
    }
    workspace: Json = {
        "metadata": {"name": "netmet"},
        "spec": {
            "workspace": {
                "resourceallocation": {"cpu": "3", "pods": "6"},
                "inheritance": {"rbac": True, "configmap": True},
                "sync": True,
                "sliceclaim": "exercises",
            }
        },
        "status": {"state": "Established", "child": "netmet-0a1b2c3d"},
    }
    inner: Json = {
        "metadata": {"name": "deep"},
        "spec": {"workspace": {"resourceallocation": {"cpu": "1", "pods": "2"}, "inheritance": {"rbac": True}}},
        "status": {"state": "Established", "child": "deep-4e5f6a7b"},
    }
    request: Json = {
        "metadata": {"name": "erin"},
        "spec": {
            "firstname": "Erin",
            "lastname": "E.",
            "email": "erin@example.com",
            "roleref": {"kind": "ClusterRole", "name": "view"},
            "approved": True,
        },
    }

    def labels(parent: str, owner: str) -> Json:
        reference = {"apiVersion": "v1", "kind": "Namespace", "name": parent, "controller": True}
        given = {"edge-net.io/tenant": "lip6-lab", "edge-net.io/parent-namespace": parent, "edge-net.io/owner": owner}
        return {"labels": {"edge-net.io/kind": "sub", **given}, "ownerReferences": [reference]}

    core = {"apiVersion": "core.edgenet.io/v1alpha1", "kind": "Tenant", "name": "lip6-lab", "controller": True}
    of = edgenet.SOURCE
    return ImportStory(
        source=of,
        tenant="lip6-lab",
        objects=(
            (_kind(of, "Tenant"), tenant, ""),
            (_kind(of, "TenantResourceQuota"), quota, ""),
            (_kind(of, "SubNamespace"), workspace, "lip6-lab"),
            (_kind(of, "SubNamespace"), inner, "netmet-0a1b2c3d"),
            (_kind(of, "RoleRequest"), request, "netmet-0a1b2c3d"),
        ),
        namespaces={
            "lip6-lab": {
                "labels": {"edge-net.io/kind": "core", "edge-net.io/tenant": "lip6-lab"},
                "ownerReferences": [core],
            },
            "netmet-0a1b2c3d": labels("lip6-lab", "netmet"),
            "deep-4e5f6a7b": labels("netmet-0a1b2c3d", "deep"),
        },
        quotas={
            "lip6-lab": {"pods": "6", "requests.cpu": "3"},
            "netmet-0a1b2c3d": {"pods": "4", "requests.cpu": "2"},
            "deep-4e5f6a7b": {"pods": "2", "requests.cpu": "1"},
        },
        full="deep-4e5f6a7b",
        lost=(
            "lost: EdgeNet SubNamespace 'lip6-lab/netmet': spec.workspace.sliceclaim: not carried over",
            "lost: EdgeNet Tenant 'lip6-lab': spec.contact.phone: not carried over",
        ),
    )


STORIES = (_capsule(), _kiosk(), _rancher(), _edgenet())


def documents(story: ImportStory) -> list[tuple[str, object]]:
    """Return the objects and namespaces of a story, as files have them."""
    found: list[tuple[str, object]] = [
        (
            resource.full_name,
            {
                **value,
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {**value["metadata"], **({"namespace": namespace} if namespace else {})},
            },
        )
        for resource, value, namespace in story.objects
    ]
    for name, metadata in story.namespaces.items():
        owners = [{"uid": owner["name"], **owner} for owner in metadata.get("ownerReferences", [])]
        meta = {**metadata, "name": name, "ownerReferences": owners}
        found.append(("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}))
    return found
