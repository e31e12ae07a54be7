"""Objects of Tenantry's kinds from YAML or JSON files, read strictly: all documents, or none."""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
import yaml

from tenantry.api.clustertemplate import ClusterTemplate
from tenantry.api.dedicatedcluster import DedicatedCluster
from tenantry.api.errors import InputError
from tenantry.api.kinds import KINDS
from tenantry.api.model import KubernetesObject
from tenantry.api.names import DNS_LABEL, DNS_SUBDOMAIN
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.api.wording import shortened
from tenantry.views.manifests import Manifests, WantedObject
from tenantry.world.placeholders import beside, replaced
from tenantry.world.structure import read, without_nulls
from tenantry.world.validation import (
    Problem,
    validate_cluster,
    validate_plane,
    validate_subnamespace,
    validate_template,
    validate_tenant,
)

K = TypeVar("K", bound=KubernetesObject)

MOST_VALUES = 2_000_000
MOST_BYTES = 32 * 2**20
"""The longest file. The API server stores objects of at most 1.5 MiB."""
MOST_MERGED = 100_000
"""The most keys that merge keys (<<) may give one map: each level of aliases may double them."""
MOST_PROBLEMS = 50
"""The most wrong fields that one run reports, so that a folder of other files does not fill the screen."""
MOST_NAME = 253
SUFFIXES = (".yaml", ".yml", ".json")
LISTS = ("List", *(f"{kind.resource.kind}List" for kind in KINDS))
KIND_BY_NAME = {kind.resource.kind: kind for kind in KINDS}


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: no key occurs twice, and a date is a string."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - the base's
        """Return a map."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} stands twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replace the merge keys of a map by what they stand for."""
        super().flatten_mapping(node)
        if len(node.value) > MOST_MERGED:
            told = f"a map gets more than {MOST_MERGED:,} keys from aliases"
            raise yaml.constructor.ConstructorError(None, None, told, node.start_mark)


# YAML 1.1 reads 2027-01-31 as a date; Kubernetes' parser keeps the string.
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class Document(msgspec.Struct, frozen=True):
    """A document and its place, as in `tenants.yaml, document 2`."""

    where: str
    value: object


def read_objects(files: Sequence[str]) -> list[WantedObject]:
    """Return the objects of all of Tenantry's kinds in files, and in the files of folders; "-" is stdin.

    Raises:
        InputError: A document is invalid, or of another kind; the message names each place and field.
    """
    documents = [document for file in files for each in expanded(file) for document in documents_in(each, "objects")]
    problems: list[str] = []
    found: list[WantedObject] = []
    taken: dict[str, dict[str, KubernetesObject]] = {}
    for document in documents:
        name = _kind(document.value)
        kind = KIND_BY_NAME.get(name) if isinstance(name, str) else None
        if kind is None:
            problems.append(f"{document.where}: kind is {name!r:.70}; it must be one of {', '.join(KIND_BY_NAME)}")
            continue
        before = taken.setdefault(kind.resource.kind, {})
        wrong = _take(document, before, kind)
        problems += [f"{document.where}: {problem}" for problem in wrong]
        if not wrong:
            whole = cast("dict[str, Any]", without_nulls(document.value))
            found.append(WantedObject(document.where, next(reversed(before.values())), whole))
    _raise(problems)
    return found


def _raise(problems: list[str]) -> None:
    if problems:
        text = shortened(problems, separator="\n  ", in_order=True, most=MOST_PROBLEMS)
        raise InputError(f"nothing was done, because of:\n  {text}" if len(problems) > 1 else text)


def read_manifests(files: Sequence[str]) -> Manifests:
    """Return the tenants, Subnamespaces, clusters and templates of files, and of the files in folders; "-" is stdin.

    Raises:
        InputError: A document is invalid; the message names each place and field.
    """
    documents = [document for file in files for each in expanded(file) for document in documents_in(each)]
    problems: list[str] = []
    tenants: dict[str, Tenant] = {}
    subnamespaces: dict[str, Subnamespace] = {}
    clusters: dict[str, DedicatedCluster] = {}
    templates: dict[str, ClusterTemplate] = {}
    for document in documents:
        match _kind(document.value):
            case Subnamespace.resource.kind:
                wrong = _take(document, subnamespaces, Subnamespace)
            case DedicatedCluster.resource.kind:
                wrong = _take(document, clusters, DedicatedCluster)
            case ClusterTemplate.resource.kind:
                wrong = _take(document, templates, ClusterTemplate)
            case _:
                wrong = _take(document, tenants, Tenant)
        problems += [f"{document.where}: {problem}" for problem in wrong]
    _raise(problems)
    return Manifests(
        list(tenants.values()), list(subnamespaces.values()), list(clusters.values()), list(templates.values())
    )


def _kind(value: object) -> object:
    return cast("dict[object, object]", value).get("kind") if isinstance(value, dict) else None


def _take(document: Document, found: dict[str, K], kind: type[K]) -> list[Problem]:
    """Add the object of a document to the earlier ones, and return its problems."""
    value, wrong = read(document.value, kind)
    if value is None or wrong:
        partial = replaced(document.value, kind)
        return [*wrong, *(beside(_validate(partial), wrong) if partial else ())]
    wrong = _validate(value)
    if not wrong and value.key in found:
        wrong = [Problem("metadata.name", f"must not be {value.metadata.name!r} again: a document before has it")]
    if not wrong:
        found[value.key] = value
    return wrong


def _validate(value: KubernetesObject) -> list[Problem]:
    if isinstance(value, Tenant):
        return validate_tenant(value)
    if isinstance(value, Subnamespace):
        missing = (
            [] if value.metadata.namespace else [Problem("metadata.namespace", "must be given: the parent's name")]
        )
        return [*missing, *validate_subnamespace(value)]
    if isinstance(value, DedicatedCluster):
        missing = [] if value.metadata.namespace else [Problem("metadata.namespace", "must be given")]
        return [*missing, *validate_cluster(value)]
    if isinstance(value, ClusterTemplate):
        return validate_template(value)
    if isinstance(value, VirtualControlPlane):
        return [*_place(value), *validate_plane(value)]
    return _place(value)


def _place(value: KubernetesObject) -> list[Problem]:
    """Return what is wrong with the name and the namespace of an object."""
    meta, problems = value.metadata, list[Problem]()
    if len(meta.name) > MOST_NAME or not re.fullmatch(DNS_SUBDOMAIN, meta.name, re.ASCII):
        problems.append(Problem("metadata.name", f"must be a DNS name of at most {MOST_NAME} characters"))
    if not value.resource.namespaced:
        return [*problems, *([Problem("metadata.namespace", "must not be set")] if meta.namespace else [])]
    if not re.fullmatch(DNS_LABEL, meta.namespace, re.ASCII):
        problems.append(Problem("metadata.namespace", "must be given: a DNS label"))
    return problems


def expanded(file: str) -> list[str]:
    """Return a file itself, or the YAML and JSON files in a folder and below.

    Raises:
        InputError: A folder has no such files.
    """
    folder = Path(file)
    if file == "-" or not folder.is_dir():
        return [file]
    inside = sorted(str(path) for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    if not inside:
        raise InputError(f"{file}: has no files that end in {', '.join(SUFFIXES)}")
    return inside


def documents_in(file: str, holds: str = "Tenants") -> list[Document]:
    """Return the documents of a YAML or JSON file, those of a List one by one; "-" is stdin.

    Raises:
        InputError: The file cannot be read, is not YAML, or has no documents.
    """
    source = "stdin" if file == "-" else file
    text = _text(file, source)
    try:
        values = [value for value in yaml.load_all(text, Loader=_Loader) if value is not None]
    except yaml.YAMLError as error:
        raise InputError(f"{source}: is not YAML: {_reason(error)}") from error
    except RecursionError as error:
        raise InputError(f"{source}: is nested too deeply") from error
    if not values:
        raise InputError(f"{source}: has no documents; it must hold {holds}")
    _check_size(values, source)
    found: list[Document] = []
    for index, value in enumerate(values, start=1):
        where = source if len(values) == 1 else f"{source}, document {index}"
        items = _items(value)
        if items is None:
            found.append(Document(where, value))
        else:
            found += [Document(f"{where}, items[{number}]", item) for number, item in enumerate(items)]
    return found


def _check_size(values: list[Any], source: str) -> None:
    """Reject documents that aliases expand to more than fits into memory, or without end.

    Raises:
        InputError: The documents hold more than `MOST_VALUES`.
    """
    stack: list[Any] = [values]
    left = MOST_VALUES
    while stack:
        left -= 1
        if left < 0:
            raise InputError(f"{source}: holds more than {MOST_VALUES:,} values; split it, or use fewer aliases")
        value = stack.pop()
        if isinstance(value, dict):
            stack += cast("dict[Any, Any]", value).values()
        elif isinstance(value, list):
            stack += cast("list[Any]", value)


def _text(file: str, source: str) -> str:
    try:
        if file == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{source}: cannot be read: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise InputError(f"{source}: is longer than {MOST_BYTES // 2**20} MiB; split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{source}: must be UTF-8; byte {error.start} is not") from error


def _items(value: object) -> list[object] | None:
    """Return the items of a list, as `kubectl get -o yaml` prints several objects; None for anything else."""
    if not isinstance(value, dict):
        return None
    document = cast("dict[str, object]", value)
    items = document.get("items")
    if document.get("kind") not in LISTS or not isinstance(items, list):
        return None
    return cast("list[object]", items)


def _reason(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split())
