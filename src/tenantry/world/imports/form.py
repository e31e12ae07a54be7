"""What an import will create, whatever the other tool is: the form that each reader returns. Pure.

objects of the other tool ──► reader ──► ImportPlan ──► cli/imports/adoption.py
                                         Tenant, Subnamespaces, objects for its namespaces, findings
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from tenantry.api.model import Model, ObjectMeta, Resource
from tenantry.api.owner import Owner
from tenantry.api.subnamespace import MAX_NAME, Subnamespace
from tenantry.api.tenant import NetworkIsolation, Tenant
from tenantry.world.imports.findings import FindingWeight, ImportFinding


class MarkedObject(Model, frozen=True, kw_only=True):
    """An object of any kind, for its annotations; `plural` is the resource in paths, "" if unknown."""

    api_version: str = ""
    kind: str = ""
    plural: str = ""
    metadata: ObjectMeta

    @property
    def told(self) -> str:
        """Return kind, namespace and name."""
        return f"{self.kind} {self.metadata.namespace}/{self.metadata.name}"


class InheritException(msgspec.Struct, frozen=True):
    """An object that is not propagated like its kind, and its `tenantry.dev/inherit`."""

    source: MarkedObject
    inherit: str


class ImportedChild(msgspec.Struct, frozen=True):
    """A descendant namespace, and its Subnamespace."""

    namespace: str
    subnamespace: Subnamespace


class ImportedObject(msgspec.Struct, frozen=True):
    """An object of Kubernetes that the import creates in a namespace of the tree.

    Args:
        resource: Its kind.
        namespace: The namespace.
        name: Its name.
        body: Its fields beside metadata, apiVersion and kind, as JSON has them.
    """

    resource: Resource
    namespace: str
    name: str
    body: dict[str, object]

    @property
    def document(self) -> dict[str, object]:
        """Return the whole object, as a file has it."""
        kind = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        return {**kind, "metadata": {"namespace": self.namespace, "name": self.name}, **self.body}


class ImportedTree(msgspec.Struct, frozen=True):
    """A tenant and its descendants, from the top down.

    Args:
        tenant: The Tenant.
        children: The namespaces below its core namespace.
        has_core: A namespace of the tenant's name exists and becomes its core namespace; else the operator creates it.
        objects: What is created in its namespaces, for children to inherit or in their place.
    """

    tenant: Tenant
    children: list[ImportedChild]
    has_core: bool = True
    objects: tuple[ImportedObject, ...] = ()

    @property
    def namespaces(self) -> list[str]:
        """Return the existing namespaces that the tenant gets."""
        core = [self.tenant.metadata.name] if self.has_core else []
        return [*core, *(child.namespace for child in self.children)]


class ImportPlan(msgspec.Struct, frozen=True):
    """The planned objects, and the findings."""

    trees: list[ImportedTree]
    exceptions: list[InheritException]
    findings: list[ImportFinding]

    @property
    def is_blocked(self) -> bool:
        """Return whether the import needs a decision first."""
        return any(finding.weight is FindingWeight.BLOCKS for finding in self.findings)


class ImportOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the objects of the other tool do not specify.

    Args:
        roots: The tenants to import, by their names in Tenantry; () for all.
        owners: Of the tenants; () for those that the other tool names.
        network: The network isolation of the tenants.
        fit: Shrink shares that do not fit.
    """

    roots: tuple[str, ...] = ()
    owners: tuple[Owner, ...] = ()
    network: NetworkIsolation = NetworkIsolation.OPEN
    fit: bool = False


def short_name(namespace: str) -> str:
    """Return the Subnamespace's name for a namespace: the same, or its beginning and a hash."""
    if len(namespace) <= MAX_NAME:
        return namespace
    digits = sha256(namespace.encode()).hexdigest()[:8]
    return f"{namespace[: MAX_NAME - 9].rstrip('-')}-{digits}"
