"""The objects of the Hierarchical Namespace Controller (HNC): pure.

Source: HNC v1.1, API hnc.x-k8s.io/v1alpha2, and its user guide ("Concepts").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, TypeVar, cast

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import KubernetesObject, Model, ObjectMeta, Resource
from tenantry.world.imports.form import MarkedObject
from tenantry.world.imports.objects import add_namespace
from tenantry.world.structure import each_object

GROUP = "hnc.x-k8s.io"
VERSION = "v1alpha2"
TREE_SUFFIX = ".tree.hnc.x-k8s.io/depth"
SUBNAMESPACE_OF = "hnc.x-k8s.io/subnamespace-of"
INHERITED_FROM = "hnc.x-k8s.io/inherited-from"
PROPAGATE = "propagate.hnc.x-k8s.io/"
QUOTA_NAME = "hrq.hnc.x-k8s.io"
"""The ResourceQuota that HNC keeps in every namespace below a HierarchicalResourceQuota, to count the use."""

K = TypeVar("K", bound=KubernetesObject)

Amount = int | float | str
"""A quantity as YAML gives it."""


class Pair(Model, frozen=True, kw_only=True):
    """A label or an annotation."""

    key: str
    value: str = ""


class HncMarks(Model, frozen=True, kw_only=True):
    """Labels and annotations of a namespace and its descendants."""

    labels: tuple[Pair, ...] = ()
    annotations: tuple[Pair, ...] = ()


class AnchorStatus(Model, frozen=True, kw_only=True):
    """`status` is Ok, Missing, Conflict or Forbidden."""

    status: str = ""


class SubnamespaceAnchor(KubernetesObject, frozen=True, kw_only=True):
    """Requests a child namespace with its own name."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "subnamespaceanchors", "SubnamespaceAnchor")

    spec: HncMarks = HncMarks()
    status: AnchorStatus = AnchorStatus()


class HierarchySpec(HncMarks, frozen=True, kw_only=True):
    """The place of a namespace in the forest."""

    parent: str = ""
    allow_cascading_deletion: bool = False


class HncCondition(Model, frozen=True, kw_only=True):
    """A condition of HNC."""

    type: str = ""
    status: str = "True"
    reason: str = ""
    message: str = ""


class HierarchyStatus(Model, frozen=True, kw_only=True):
    """The status of a HierarchyConfiguration."""

    conditions: tuple[HncCondition, ...] = ()


class HierarchyConfiguration(KubernetesObject, frozen=True, kw_only=True):
    """A namespace's place in the forest; its name is `hierarchy`."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "hierarchyconfigurations", "HierarchyConfiguration")

    spec: HierarchySpec = HierarchySpec()
    status: HierarchyStatus = HierarchyStatus()


class HardQuota(Model, frozen=True, kw_only=True):
    """Quota key to quantity, and the scopes if the quota does not count every pod."""

    hard: dict[str, Amount] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: dict[str, msgspec.Raw] = {}


class HierarchicalResourceQuota(KubernetesObject, frozen=True, kw_only=True):
    """What a namespace and everything below it may use together."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "hierarchicalresourcequotas", "HierarchicalResourceQuota")

    spec: HardQuota = HardQuota()


class Synchronized(Model, frozen=True, kw_only=True):
    """The mode of a resource: Propagate (the default), AllowPropagate, Remove or Ignore."""

    resource: str = ""
    group: str = ""
    version: str = ""
    mode: str = "Propagate"


class HncConfigurationPart(Model, frozen=True, kw_only=True):
    """The resources of a spec, or of a status."""

    resources: tuple[Synchronized, ...] = ()


class HncConfiguration(KubernetesObject, frozen=True, kw_only=True):
    """What HNC propagates in the whole cluster; its name is `config`."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "hncconfigurations", "HNCConfiguration", namespaced=False)

    spec: HncConfigurationPart = HncConfigurationPart()
    status: HncConfigurationPart = HncConfigurationPart()


class QuotaUsage(Model, frozen=True, kw_only=True):
    """The status of a ResourceQuota."""

    used: dict[str, Amount] = {}


class CountedQuota(KubernetesObject, frozen=True, kw_only=True):
    """A ResourceQuota, for what it counts."""

    resource: ClassVar[Resource] = Resource("", "v1", "resourcequotas", "ResourceQuota")

    status: QuotaUsage = QuotaUsage()


class HncObjects(msgspec.Struct, frozen=True, kw_only=True):
    """All objects that matter for the import.

    Args:
        namespaces: By name. Without kube-system the list is not complete, and HNC's objects may name further ones.
        anchors: Every SubnamespaceAnchor.
        hierarchies: The HierarchyConfigurations by namespace.
        quotas: Every HierarchicalResourceQuota.
        configuration: What HNC propagates besides Roles and RoleBindings; the first that was found.
        bindings: Every RoleBinding.
        usage: What a namespace itself uses, for the namespaces in which HNC counts it.
        marked: Objects with exceptions from propagation, and those that HNC never propagates.
    """

    namespaces: dict[str, Namespace]
    anchors: list[SubnamespaceAnchor]
    hierarchies: dict[str, HierarchyConfiguration]
    quotas: list[HierarchicalResourceQuota]
    configuration: HncConfiguration | None
    bindings: list[RoleBinding]
    usage: dict[str, dict[str, Amount]]
    marked: list[MarkedObject]


NEVER_PROPAGATED = frozenset({"istio-ca-root-cert"})
"""ConfigMaps that another controller creates in every namespace; HNC knows them by name."""
RANCHER = ("cattle.io/creator", "norman")
"""The label of objects of Rancher, which HNC never propagates."""


def is_marked(kind: str, metadata: ObjectMeta) -> bool:
    """Return whether an object is an exception from propagation; HNC's copies are not."""
    if INHERITED_FROM in metadata.labels:
        return False
    if any(key.startswith(PROPAGATE) for key in metadata.annotations):
        return metadata.name != QUOTA_NAME
    return is_never_propagated(kind, metadata)


def is_never_propagated(kind: str, metadata: ObjectMeta) -> bool:
    """Return whether HNC never propagates an object, whatever the mode of its kind."""
    return (kind == "ConfigMap" and metadata.name in NEVER_PROPAGATED) or metadata.labels.get(RANCHER[0]) == RANCHER[1]


def read(documents: Iterable[tuple[str, object]]) -> HncObjects:
    """Return the objects of documents; kinds that do not matter for the import are ignored.

    Args:
        documents: The place of each, for messages, and its maps, lists, strings, numbers, booleans and nulls.

    Raises:
        InputError: A document is not an object, or does not have the shape of its kind; or two Namespaces of one name
            differ.
    """
    world = HncObjects(
        namespaces={}, anchors=[], hierarchies={}, quotas=[], configuration=None, bindings=[], usage={}, marked=[]
    )
    for where, value in each_object(documents):
        kind, group = str(value["kind"]), str(value.get("apiVersion", "")).rpartition("/")[0]
        match group, kind:
            case "", "Namespace":
                add_namespace(world.namespaces, where, _convert(where, value, Namespace))
            case "", "ResourceQuota" if _name(value) == QUOTA_NAME:
                counted = _convert(where, value, CountedQuota)
                world.usage[counted.metadata.namespace] = counted.status.used
            case "hnc.x-k8s.io", "SubnamespaceAnchor":
                world.anchors.append(_placed(where, _convert(where, value, SubnamespaceAnchor)))
            case "hnc.x-k8s.io", "HierarchyConfiguration":
                hierarchy = _placed(where, _convert(where, value, HierarchyConfiguration))
                world.hierarchies[hierarchy.metadata.namespace] = hierarchy
            case "hnc.x-k8s.io", "HierarchicalResourceQuota":
                world.quotas.append(_placed(where, _convert(where, value, HierarchicalResourceQuota)))
            case "hnc.x-k8s.io", "HNCConfiguration":
                world = msgspec.structs.replace(world, configuration=_convert(where, value, HncConfiguration))
            case _:
                if (group, kind) == ("rbac.authorization.k8s.io", "RoleBinding"):
                    world.bindings.append(_convert(where, value, RoleBinding))
                _mark(where, value, kind, world.marked)
    return world


def _convert(where: str, value: object, kind: type[K]) -> K:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: is not a valid {kind.resource.kind}: {error}") from error


def _placed(where: str, value: K) -> K:
    if not value.metadata.namespace or not value.metadata.name:
        raise InputError(f"{where}: metadata.namespace and metadata.name must be given")
    return value


def _name(value: Mapping[str, object]) -> object:
    metadata = value.get("metadata")
    return cast("dict[str, object]", metadata).get("name") if isinstance(metadata, dict) else None


def _mark(where: str, value: dict[str, object], kind: str, marked: list[MarkedObject]) -> None:
    try:
        found = msgspec.convert(value, MarkedObject)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: is not a valid {kind}: {error}") from error
    if found.metadata.namespace and is_marked(kind, found.metadata):
        marked.append(found)
