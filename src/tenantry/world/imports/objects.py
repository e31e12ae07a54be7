"""The objects that an import reads, from files or from an API server, and what each source declares: pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import TypeVar

import msgspec

from tenantry.api.errors import InputError
from tenantry.api.kubernetes import Namespace
from tenantry.api.model import KubernetesObject, Model, ObjectMeta, Resource
from tenantry.api.wording import visible
from tenantry.world import quantity, quota
from tenantry.world.imports.fields import Fields
from tenantry.world.imports.form import ImportOptions, ImportPlan
from tenantry.world.structure import each_object

K = TypeVar("K", bound=KubernetesObject)

Amount = int | float | str
"""A quantity as YAML gives it."""


class ReadObject(msgspec.Struct, frozen=True):
    """An object of another tool.

    Args:
        told: The tool's name of the kind, and the name: "Capsule Tenant 'oil'".
        metadata: Its metadata.
        fields: The whole object, of which apiVersion, kind, metadata and status are taken.
    """

    told: str
    metadata: ObjectMeta
    fields: Fields

    @property
    def name(self) -> str:
        """Return its name."""
        return self.metadata.name


class _Use(Model, frozen=True, kw_only=True):
    used: dict[str, Amount] = {}


class _QuotaScope(Model, frozen=True, kw_only=True):
    scopes: tuple[str, ...] = ()
    scope_selector: dict[str, msgspec.Raw] = {}


class UsedQuota(KubernetesObject, frozen=True, kw_only=True):
    """A ResourceQuota, for what it counts."""

    resource = Resource("", "v1", "resourcequotas", "ResourceQuota")

    spec: _QuotaScope = _QuotaScope()
    status: _Use = _Use()


class SourceObjects(msgspec.Struct, frozen=True, kw_only=True):
    """All objects that matter for an import.

    Args:
        objects: Kind to the objects of the source.
        namespaces: The namespaces by name.
        usage: Namespace to normal quota key to the largest amount that a ResourceQuota counts there.
    """

    objects: Mapping[str, list[ReadObject]]
    namespaces: Mapping[str, Namespace]
    usage: Mapping[str, Mapping[str, Fraction]]

    def of(self, kind: str) -> list[ReadObject]:
        """Return the objects of a kind, by name."""
        return sorted(self.objects.get(kind, []), key=lambda each: (each.metadata.namespace, each.name))


class Controllers(msgspec.Struct, frozen=True, kw_only=True):
    """The programs of the other tool, which must not run while the import adopts namespaces.

    Args:
        namespace: The namespace of its Deployments; "" if the tool keeps running.
        webhooks: The names of its webhook configurations.
    """

    namespace: str = ""
    webhooks: tuple[str, ...] = ()


class ImportTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that namespaces can be imported from.

    Args:
        name: The word of the command; it is recorded on what the import adopts.
        title: The tool's name in messages.
        help: The help of the command: one line, an empty one, and paragraphs.
        listing: The kubectl command whose output has everything that the import reads.
        controllers: What has to be stopped first.
        owners: (API group, kind) of owner references that the tool gives to its namespaces: the garbage collector
            would delete an adopted namespace with such an owner.
        next: What to do after the adoption to remove the tool, line by line.
    """

    name: str
    title: str
    help: str
    listing: str
    controllers: Controllers = Controllers()
    owners: frozenset[tuple[str, str]] = frozenset()
    next: tuple[str, ...] = ()


class ImportSource(ImportTool, frozen=True, kw_only=True):
    """A tool of which all objects of some kinds are read.

    Args:
        kinds: What to read from a cluster, beside Namespaces and ResourceQuotas; the first one must be served.
        plan: Return the planned import of objects.
    """

    kinds: tuple[Resource, ...]
    plan: Callable[[SourceObjects, ImportOptions], ImportPlan]


def read(source: ImportSource, documents: Iterable[tuple[str, object]]) -> SourceObjects:
    """Return the objects of documents that the import needs; those of other kinds are ignored.

    Args:
        source: The source.
        documents: The place of each, for messages, and its maps, lists, strings, numbers, booleans and nulls.

    Raises:
        InputError: A document is not an object, does not have the shape of its kind, or is there twice; or two
            Namespaces of one name differ.
    """
    known = {(kind.group, kind.kind) for kind in source.kinds}
    objects: dict[tuple[str, str, str], ReadObject] = {}
    namespaces: dict[str, Namespace] = {}
    usage: defaultdict[str, dict[str, Fraction]] = defaultdict(dict)
    for where, value in each_object(documents):
        kind, group = str(value["kind"]), str(value.get("apiVersion", "")).rpartition("/")[0]
        if (group, kind) == ("", "Namespace"):
            add_namespace(namespaces, where, _convert(where, value, Namespace))
        elif (group, kind) == ("", "ResourceQuota"):
            _count(usage, _convert(where, value, UsedQuota))
        elif (group, kind) in known:
            found = _object(source.title, where, kind, value)
            key = (kind, found.metadata.namespace, found.name)
            if key in objects:
                raise InputError(f"{where}: {found.told} is there twice; leave one of the two out")
            objects[key] = found
    by_kind: defaultdict[str, list[ReadObject]] = defaultdict(list)
    for (kind, _, _), found in objects.items():
        by_kind[kind].append(found)
    return SourceObjects(objects=by_kind, namespaces=namespaces, usage=usage)


def add_namespace(namespaces: dict[str, Namespace], where: str, namespace: Namespace) -> None:
    """Add a Namespace to those by name; the same one may be in several files.

    Args:
        namespaces: Name to Namespace; it is changed.
        where: The place of the document, for messages.
        namespace: The Namespace.

    Raises:
        InputError: Another Namespace of the name was read before, for example that of another cluster.
    """
    name = namespace.metadata.name
    if namespaces.setdefault(name, namespace) != namespace:
        raise InputError(
            f"{where}: two Namespaces {name!r} differ; leave one of the two out: an import takes the Namespaces of one"
            " cluster, read once"
        )


def _object(title: str, where: str, kind: str, value: dict[str, object]) -> ReadObject:
    try:
        metadata = msgspec.convert(value.get("metadata", {}), ObjectMeta)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: is not a valid {kind}: metadata: {visible(str(error))}") from error
    if not metadata.name:
        raise InputError(f"{where}: metadata.name of this {kind} must be given")
    place = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    fields = Fields(value, f"{title} {kind} {place!r}", "")
    for taken in ("apiVersion", "kind", "metadata"):
        fields.any(taken)
    return ReadObject(fields.told, metadata, fields)


def _convert(where: str, value: object, kind: type[K]) -> K:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: is not a valid {kind.resource.kind}: {visible(str(error))}") from error


def _count(usage: defaultdict[str, dict[str, Fraction]], counted: UsedQuota) -> None:
    """Raise the amounts of a namespace to those that a ResourceQuota counts; it skips what is not a quantity."""
    if counted.spec.scopes or counted.spec.scope_selector:
        return  # counts some pods only
    found = usage[counted.metadata.namespace]
    for key, amount in counted.status.used.items():
        try:
            normal, value = quota.normal_key(key), quantity.parse(str(amount))
        except InputError:
            continue
        # `cpu` and `requests.cpu` are one key, and a ResourceQuota that Kubernetes has not counted yet has old amounts.
        found[normal] = max(value, found.get(normal, Fraction(0)))
