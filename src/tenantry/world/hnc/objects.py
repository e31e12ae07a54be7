"""What the Hierarchical Namespace Controller (HNC) has in a cluster, and what there is to say of it. Pure.

Source: HNC v1.1, API hnc.x-k8s.io/v1alpha2, and its user guide ("Concepts").
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import ClassVar, TypeVar, cast

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.model import KubernetesObject, Model, ObjectMeta, Resource
from tenantry.world.structure import without_nulls

GROUP = "hnc.x-k8s.io"
VERSION = "v1alpha2"
TREE_SUFFIX = ".tree.hnc.x-k8s.io/depth"
SUBNAMESPACE_OF = "hnc.x-k8s.io/subnamespace-of"
INHERITED_FROM = "hnc.x-k8s.io/inherited-from"
PROPAGATE = "propagate.hnc.x-k8s.io/"
QUOTA_NAME = "hrq.hnc.x-k8s.io"
"""The ResourceQuota that HNC keeps in every namespace below a HierarchicalResourceQuota; it counts what is used."""

K = TypeVar("K", bound=KubernetesObject)

Amount = int | float | str
"""A quantity as YAML gives it."""


class Pair(Model, frozen=True, kw_only=True):
    """A label or an annotation."""

    key: str
    value: str = ""


class Marks(Model, frozen=True, kw_only=True):
    """What a namespace and everything below it is marked with."""

    labels: tuple[Pair, ...] = ()
    annotations: tuple[Pair, ...] = ()


class AnchorStatus(Model, frozen=True, kw_only=True):
    """`status` is Ok, Missing, Conflict or Forbidden."""

    status: str = ""


class SubnamespaceAnchor(KubernetesObject, frozen=True, kw_only=True):
    """Asks for a namespace of its name below the one that it is in."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "subnamespaceanchors", "SubnamespaceAnchor")

    spec: Marks = Marks()
    status: AnchorStatus = AnchorStatus()


class HierarchySpec(Marks, frozen=True, kw_only=True):
    """Where a namespace is in the forest."""

    parent: str = ""
    allow_cascading_deletion: bool = False


class HncCondition(Model, frozen=True, kw_only=True):
    """Something that is wrong, as HNC tells it."""

    type: str = ""
    status: str = "True"
    reason: str = ""
    message: str = ""


class HierarchyStatus(Model, frozen=True, kw_only=True):
    """What HNC says of a namespace."""

    conditions: tuple[HncCondition, ...] = ()


class HierarchyConfiguration(KubernetesObject, frozen=True, kw_only=True):
    """A namespace's place in the forest; its name is `hierarchy`."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "hierarchyconfigurations", "HierarchyConfiguration")

    spec: HierarchySpec = HierarchySpec()
    status: HierarchyStatus = HierarchyStatus()


class HardQuota(Model, frozen=True, kw_only=True):
    """Quota key to quantity, and which pods it counts where that is not all of them."""

    hard: dict[str, Amount] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: dict[str, msgspec.Raw] = {}


class HierarchicalResourceQuota(KubernetesObject, frozen=True, kw_only=True):
    """What a namespace and everything below it may use together."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "hierarchicalresourcequotas", "HierarchicalResourceQuota")

    spec: HardQuota = HardQuota()


class Synchronized(Model, frozen=True, kw_only=True):
    """What HNC does with a resource: Propagate (also where it says nothing), AllowPropagate, Remove or Ignore."""

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


class Usage(Model, frozen=True, kw_only=True):
    """What is used of a quota."""

    used: dict[str, Amount] = {}


class CountedQuota(KubernetesObject, frozen=True, kw_only=True):
    """A ResourceQuota, for what it counts."""

    resource: ClassVar[Resource] = Resource("", "v1", "resourcequotas", "ResourceQuota")

    status: Usage = Usage()


class Marked(Model, frozen=True, kw_only=True):
    """An object of any kind, for its annotations; `plural` is what its kind is called in paths, "" where unknown."""

    api_version: str = ""
    kind: str = ""
    plural: str = ""
    metadata: ObjectMeta

    @property
    def told(self) -> str:
        """Return kind, namespace and name."""
        return f"{self.kind} {self.metadata.namespace}/{self.metadata.name}"


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything of HNC's that was found.

    Args:
        namespaces: By name; without kube-system not all were read, and those that HNC's objects name are there, too.
        anchors: Every SubnamespaceAnchor.
        hierarchies: The HierarchyConfigurations by namespace.
        quotas: Every HierarchicalResourceQuota.
        configuration: What is propagated beside roles and their bindings; the first that was found.
        bindings: Every RoleBinding.
        usage: What a namespace itself uses, by namespace, for those where HNC counts it.
        marked: Objects with exceptions from propagation, and those that HNC never propagates.
    """

    namespaces: dict[str, Namespace]
    anchors: list[SubnamespaceAnchor]
    hierarchies: dict[str, HierarchyConfiguration]
    quotas: list[HierarchicalResourceQuota]
    configuration: HncConfiguration | None
    bindings: list[RoleBinding]
    usage: dict[str, dict[str, Amount]]
    marked: list[Marked]


NEVER_PROPAGATED = frozenset({"istio-ca-root-cert"})
"""ConfigMaps that something else makes in every namespace; HNC knows them by name."""
RANCHER = ("cattle.io/creator", "norman")
"""The label of what Rancher makes, which HNC never propagates."""


def is_marked(kind: str, metadata: ObjectMeta) -> bool:
    """Tell whether an object is an exception from propagation; HNC's copies are none."""
    if INHERITED_FROM in metadata.labels:
        return False
    if any(key.startswith(PROPAGATE) for key in metadata.annotations):
        return metadata.name != QUOTA_NAME
    return is_never_propagated(kind, metadata)


def is_never_propagated(kind: str, metadata: ObjectMeta) -> bool:
    """Tell whether HNC leaves an object where it is, whatever is said of its kind."""
    return (kind == "ConfigMap" and metadata.name in NEVER_PROPAGATED) or metadata.labels.get(RANCHER[0]) == RANCHER[1]


def read(documents: Iterable[tuple[str, object]]) -> World:
    """Return what documents hold; kinds that do not matter here are passed over.

    Args:
        documents: Where each stands, for messages, and its maps, lists, strings, numbers, booleans and nulls.

    Raises:
        InputError: A document is no object, or one of HNC's is not shaped as HNC's are; names the place.
    """
    world = World(
        namespaces={}, anchors=[], hierarchies={}, quotas=[], configuration=None, bindings=[], usage={}, marked=[]
    )
    for where, value in _objects(documents):
        kind, group = str(value["kind"]), str(value.get("apiVersion", "")).rpartition("/")[0]
        match group, kind:
            case "", "Namespace":
                namespace = _convert(where, value, Namespace)
                world.namespaces[namespace.metadata.name] = namespace
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


def _objects(documents: Iterable[tuple[str, object]]) -> Iterator[tuple[str, dict[str, object]]]:
    for where, value in documents:
        if not isinstance(value, dict) or not isinstance(cast("dict[str, object]", value).get("kind"), str):
            raise InputError(f"{where}: must be a Kubernetes object, with apiVersion, kind and metadata")
        document = cast("dict[str, object]", without_nulls(cast("object", value)))
        items = document.get("items")
        if str(document["kind"]).endswith("List") and isinstance(items, list):
            inner = enumerate(cast("list[object]", items))
            yield from _objects((f"{where}, items[{index}]", item) for index, item in inner)
        else:
            yield where, document


def _convert(where: str, value: object, kind: type[K]) -> K:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: is no {kind.resource.kind} as Kubernetes has them: {error}") from error


def _placed(where: str, value: K) -> K:
    if not value.metadata.namespace or not value.metadata.name:
        raise InputError(f"{where}: metadata.namespace and metadata.name must be given")
    return value


def _name(value: Mapping[str, object]) -> object:
    metadata = value.get("metadata")
    return cast("dict[str, object]", metadata).get("name") if isinstance(metadata, dict) else None


def _mark(where: str, value: dict[str, object], kind: str, marked: list[Marked]) -> None:
    try:
        found = msgspec.convert(value, Marked)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: is no {kind} as Kubernetes has them: {error}") from error
    if found.metadata.namespace and is_marked(kind, found.metadata):
        marked.append(found)


# -- findings -------------------------------------------------------------------------------------


class Weight(StrEnum):
    """How much a finding matters.

    BLOCKS: nothing can be applied before somebody decides. LOST: it is not carried over. NOTE: it is, but differently.
    """

    BLOCKS = "blocks"
    LOST = "lost"
    NOTE = "note"


class Finding(msgspec.Struct, frozen=True):
    """Something to know before importing.

    Args:
        weight: How much it matters.
        where: The namespaces, or objects, that it is about, sorted.
        text: What, why, and what to do.
    """

    weight: Weight
    where: tuple[str, ...]
    text: str


class Findings:
    """Findings as they come: those that say the same become one."""

    def __init__(self) -> None:
        self._where: defaultdict[tuple[Weight, str], set[str]] = defaultdict(set)

    def add(self, weight: Weight, where: str, text: str) -> None:
        """Take one."""
        self._where[weight, text].add(where)

    def all(self) -> list[Finding]:
        """Return them, what matters most first, then as they came."""
        order = list(Weight)
        found = [Finding(weight, tuple(sorted(where)), text) for (weight, text), where in self._where.items()]
        return sorted(found, key=lambda finding: order.index(finding.weight))
