"""Quantities and quotas, as several kinds have them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tenantry.api.crd import Rule, rules
from tenantry.api.model import Model

QUOTA_KEY = (
    r"^((requests|limits)[.])?(cpu|memory|ephemeral-storage)$"
    r"|^requests[.]storage$|^storage$|^(requests[.])?hugepages-[0-9]+(Ki|Mi|Gi)$"
    r"|^(pods|services|services[.]loadbalancers|services[.]nodeports|secrets|configmaps|persistentvolumeclaims"
    r"|replicationcontrollers|resourcequotas)$"
    r"|^count/[a-z0-9-]+([.][a-z0-9.-]+)?$"
    r"|^requests[.][a-z0-9.-]+/[A-Za-z0-9._-]+$"
    r"|^[a-z0-9.-]+[.]storageclass[.]storage[.]k8s[.]io/(requests[.]storage|persistentvolumeclaims)$"
    r"|^[a-z0-9.-]+[.]deviceclass[.]resource[.]k8s[.]io/devices$"
)
"""The quota keys that Tenantry divides (Kubernetes: "Resource Quotas"); `cpu` is short for `requests.cpu`."""

CONTAINER_RESOURCE = (
    "^(cpu|memory|ephemeral-storage|hugepages-[0-9]+(Ki|Mi|Gi)|[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9._-]+)$"
)
"""The resources that a container may request (Kubernetes: "Resource Management for Pods and Containers")."""

Quantity = Annotated[
    int | str,
    Meta(
        description="A Kubernetes quantity, not negative.",
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
            "maxLength": 64,
            **rules(
                Rule(
                    "type(self) == int ? self >= 0"
                    " : self.matches('[0-9]') && isQuantity(self) && !quantity(self).isLessThan(quantity('0'))",
                    "must be a quantity that is not negative, as in 500m, 2 or 8Gi",
                )
            ),
        },
    ),
]
Quantities = Annotated[dict[str, Quantity], Meta(max_length=64)]
ContainerResources = Annotated[
    Quantities,
    Meta(
        extra_json_schema=rules(
            Rule(
                f"self.all(k, size(k) <= 253 && k.matches('{CONTAINER_RESOURCE}'))",
                "must have only resources of containers, as in cpu, memory, ephemeral-storage or example.com/gpu",
            )
        )
    ),
]

ObjectSizes = Annotated[
    Quantities,
    Meta(
        extra_json_schema=rules(
            Rule(
                "self.all(k, k in ['configmaps', 'helmReleases', 'others', 'secrets'])",
                "must have only configmaps, secrets, helmReleases and others, as in configmaps: 128Ki",
            )
        ),
    ),
]


class Quota(Model, frozen=True, kw_only=True):
    """What the whole tenant may use."""

    hard: Annotated[
        Quantities,
        Meta(
            description="Quota keys and their quantities; cpu, memory and ephemeral-storage mean requests.",
            extra_json_schema=rules(
                Rule(
                    f"self.all(k, size(k) <= 253 && k.matches('{QUOTA_KEY}'))",
                    "must have only keys of Kubernetes' resource quotas, as in cpu, limits.memory, requests.storage,"
                    " pods, count/deployments.apps or, for extended resources, requests.example.com/gpu",
                ),
                Rule(
                    "self.all(k, !(k.matches('^(cpu|memory|ephemeral-storage|storage|hugepages-.*)$')"
                    " && ('requests.' + k) in self))",
                    "must not have both a key and the same key with requests. before it, which mean the same",
                ),
            ),
        ),
    ] = {}
