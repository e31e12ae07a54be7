"""The Subnamespace: a child of a tenant's namespace, for a team (Workspace) or for a customer (Subtenant)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, UnsetType

from tenantry.api.controlplanechoice import CONVERTED, NOT_OF_A_CHILD, SHORT, ControlPlaneChoice
from tenantry.api.conversion import Conversion
from tenantry.api.crd import (
    AGE,
    MESSAGE,
    READY,
    REASON,
    Column,
    Conditions,
    Names,
    ObservedGeneration,
    Rule,
    list_map,
    rules,
)
from tenantry.api.marks import GROUP, VERSION
from tenantry.api.model import EDIT, READ, KindAccess, KubernetesObject, Model, Resource
from tenantry.api.names import DNS_LABEL
from tenantry.api.owner import Owner
from tenantry.api.quota import Quota
from tenantry.api.rules import Rules
from tenantry.api.runtime import RuntimeIsolation
from tenantry.api.times import Instant

MAX_NAME = 46
"""The longest name: the namespace's name appends a hyphen and 16 hexadecimal digits, and may have 63 characters."""

MAX_OTHERS = 16
"""How many kinds a child can inherit beyond the seven."""

NEVER_INHERITED = (
    "pods|events|events[.]events[.]k8s[.]io|endpoints|endpointslices[.]discovery[.]k8s[.]io|bindings"
    "|controllerrevisions[.]apps|replicasets[.]apps|leases[.]coordination[.]k8s[.]io|resourcequotas"
    "|roles[.]rbac[.]authorization[.]k8s[.]io|rolebindings[.]rbac[.]authorization[.]k8s[.]io"
    "|networkpolicies[.]networking[.]k8s[.]io|limitranges|secrets|configmaps|serviceaccounts"
    "|[a-z0-9-]+[.]([a-z0-9-]+[.])*tenantry[.]dev"
)
"""Kinds that `inheritance.others` may not name: what controllers make, what has a field of its own, and ours."""

EMPTY_OR_LABEL = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"

RUNS_PODS = "replicationcontrollers|[a-z0-9-]+[.](apps|batch)"
"""Kinds that a Subtenant does not inherit: what runs in it can read its Secrets."""


class Mode(StrEnum):
    """Whether the owners of the parent see into the child."""

    WORKSPACE = "Workspace"
    SUBTENANT = "Subtenant"


class Scope(StrEnum):
    """Whether the child has its name on this cluster only, or on every cluster of a federation."""

    LOCAL = "Local"
    FEDERATED = "Federated"


class InheritanceMode(StrEnum):
    """Whether the child inherits the parent's objects of a kind."""

    NONE = "None"
    COPY = "Copy"
    SYNC = "Sync"


_Mode = Annotated[InheritanceMode, Meta(description="None, Copy (once) or Sync (kept the same).")]


class OtherInheritance(Model, frozen=True, kw_only=True):
    """A kind beyond the seven."""

    resource: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            description="The kind's plural and group, as in widgets.example.com; an administrator must have allowed it"
            " in TenancyDefaults.",
            extra_json_schema=rules(
                Rule(
                    f"!self.matches('^({NEVER_INHERITED})$')",
                    "must not be a kind that controllers create, a Tenantry kind, or a kind with a field of its"
                    " own in spec.inheritance",
                )
            ),
        ),
    ]
    mode: Annotated[InheritanceMode, Meta(description="None, Copy (once) or Sync (kept the same).")]


class Inheritance(Model, frozen=True, kw_only=True):
    """What the child inherits of the parent's objects."""

    roles: _Mode = InheritanceMode.NONE
    role_bindings: Annotated[
        InheritanceMode,
        Meta(description="None, Copy (once) or Sync (kept the same); the parent's owners are the child's, too."),
    ] = InheritanceMode.NONE
    network_policies: _Mode = InheritanceMode.NONE
    limit_ranges: _Mode = InheritanceMode.NONE
    secrets: _Mode = InheritanceMode.NONE
    config_maps: _Mode = InheritanceMode.NONE
    service_accounts: _Mode = InheritanceMode.NONE
    others: Annotated[
        tuple[OtherInheritance, ...],
        Meta(max_length=MAX_OTHERS, description="Kinds beyond the seven.", extra_json_schema=list_map("resource")),
    ] = ()


class Adoption(Model, frozen=True, kw_only=True):
    """An existing namespace that becomes the child, instead of a new one."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.__namespace__) && size(self.__namespace__) > 0", "must be given", field="namespace"),
    )

    namespace: Annotated[str, Meta(max_length=63, description="The namespace.")] = ""
    parent: Annotated[
        str,
        Meta(
            max_length=63,
            description="To move it: the namespace in which the Subnamespace of the same name is now. Without it, an"
            " administrator has to label the namespace with tenantry.dev/subnamespace-uid.",
        ),
    ] = ""


class ZoneChoice(StrEnum):
    """Whether a Workspace is in the network zone of its parent."""

    INHERITED = "Inherited"
    OWN = "Own"


class SubnamespaceIsolation(RuntimeIsolation, frozen=True, kw_only=True):
    """How strictly a child is isolated."""

    zone: Annotated[
        ZoneChoice,
        Meta(
            description="Inherited: pods of the child and of its parent reach each other, if the tenant's isolation"
            " permits it. Own: the child and its descendants are a network zone of their own, which reaches no other"
            " zone of the tenant, has hosts of its own, and is kept apart by anti-affinity of no other zone. A"
            " Subtenant always has its own."
        ),
    ] = ZoneChoice.INHERITED

    control_plane: Annotated[
        ControlPlaneChoice,
        Meta(
            description="Shared: owners work with the API server of the cluster. Virtual: a VirtualControlPlane of the"
            " Subnamespace's name is created in the child namespace; owners are administrators there, and cannot run"
            " pods or write objects in the namespace themselves. A change converts the Subnamespace while its pods"
            " run: status.conversion reports the progress. Children do not inherit it."
        ),
    ] = ControlPlaneChoice.SHARED


_Marks = Annotated[dict[str, Annotated[str, Meta(max_length=4096)]], Meta(max_length=64)]


class SubnamespaceSpec(Model, frozen=True, kw_only=True):
    """What the child should be."""

    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "self.mode == oldSelf.mode", "must not change: delete the Subnamespace and create another one", field="mode"
        ),
        Rule("self.scope == oldSelf.scope", "must not change: the namespace's name depends on it", field="scope"),
        Rule(
            "has(self.namespaceName) == has(oldSelf.namespaceName)"
            " && (!has(self.namespaceName) || self.namespaceName == oldSelf.namespaceName)",
            "must not change: delete the Subnamespace and create another one",
            field="namespaceName",
        ),
        Rule(
            "!has(self.namespaceName) || self.namespaceName == '' || self.namespaceName != 'default'"
            " && !self.namespaceName.startsWith('kube-') && !self.namespaceName.startsWith('tenantry-')",
            "must not be default nor begin with kube- or tenantry-, which are reserved; choose another name",
            field="namespaceName",
        ),
        Rule(
            "!has(self.namespaceName) || self.namespaceName == '' || !has(self.adopt)",
            "must not be set beside adopt, whose namespace keeps its name",
            field="namespaceName",
        ),
        Rule(
            "has(self.owners) && size(self.owners) > 0"
            " || self.mode == 'Workspace' && self.inheritance.roleBindings != 'None'",
            "must have at least one owner, as in {kind: User, name: ada}, unless a Workspace inherits roleBindings",
            field="owners",
        ),
        Rule(
            "self.mode == 'Workspace' || self.inheritance.roles == 'None' && self.inheritance.roleBindings == 'None'"
            " && self.inheritance.networkPolicies == 'None' && self.inheritance.serviceAccounts == 'None'",
            "must not have roles, roleBindings, networkPolicies nor serviceAccounts in a Subtenant, which its parent"
            " does not see into; leave them at None",
            field="inheritance",
        ),
        Rule(
            "self.mode == 'Workspace' || self.inheritance.limitRanges != 'Sync' && self.inheritance.secrets != 'Sync'"
            " && self.inheritance.configMaps != 'Sync'"
            " && (!has(self.inheritance.others) || self.inheritance.others.all(o, o.mode != 'Sync'))",
            "must not be Sync in a Subtenant, because its parent must not change its objects later; use Copy",
            field="inheritance",
        ),
        Rule(
            "self.mode == 'Workspace' || !has(self.inheritance.others) || self.inheritance.others.all(o,"
            f" o.mode == 'None' || !o.resource.matches('^({RUNS_PODS})$'))",
            "must not have kinds that run pods in a Subtenant, which would read its Secrets for its parent",
            field="inheritance.others",
        ),
        Rule("self.isolation.controlPlane != 'Dedicated'", NOT_OF_A_CHILD, field="isolation.controlPlane"),
        Rule(
            "self.isolation.controlPlane != 'Virtual' || self.inheritance.roleBindings == 'None'",
            "must be None if isolation.controlPlane is Virtual: inherited bindings would give rights on the host; name"
            " the owners in spec.owners",
            field="inheritance.roleBindings",
        ),
        Rule(
            "has(self.adopt) == has(oldSelf.adopt) && (!has(self.adopt) || self.adopt == oldSelf.adopt)",
            "must not change: the child is one namespace for as long as the Subnamespace is there",
            field="adopt",
        ),
    )

    mode: Annotated[
        Mode,
        Meta(
            description="Workspace: for a team; subjects of inherited bindings work in it. Subtenant: for a customer;"
            " the owners of the parent cannot see into it, and can delete it."
        ),
    ]
    owners: Annotated[
        tuple[Owner, ...], Meta(max_length=64, description="The users, groups and ServiceAccounts that own the child.")
    ] = ()
    scope: Annotated[
        Scope, Meta(description="Federated: the child has the same name on every cluster of a federation.")
    ] = Scope.LOCAL
    namespace_name: Annotated[
        str,
        Meta(
            max_length=63,
            pattern=EMPTY_OR_LABEL,
            description="The name of the child namespace, if it must be exactly this one. The Tenant must allow it in"
            " spec.namespaces.exactNames. A namespace that exists is never taken: the reason is NameTaken.",
        ),
    ] = ""
    inheritance: Annotated[Inheritance, Meta(description="What the child inherits of the parent's objects.")] = (
        Inheritance()
    )
    quota: Annotated[
        Quota,
        Meta(
            description="The share of the parent's quota that the child and everything below it may use; 0 of every"
            " key that the tenant limits and that is not named."
        ),
    ] = Quota()
    rules: Annotated[
        Rules,
        Meta(
            description="What workloads may request in the child and its descendants; never looser than in the parent."
        ),
    ] = Rules()
    isolation: Annotated[
        SubnamespaceIsolation, Meta(description="How strictly the child is isolated; never less than its parent.")
    ] = SubnamespaceIsolation()
    labels: Annotated[
        _Marks, Meta(description="Labels of the child namespace: TENANT.tenantry.dev/…, and what the tenant may set.")
    ] = {}
    annotations: Annotated[
        _Marks,
        Meta(description="Annotations of the child namespace: TENANT.tenantry.dev/…, and what the tenant may set."),
    ] = {}
    allow_cascading_deletion: Annotated[
        bool, Meta(description="True: deleting this deletes the Subnamespaces inside, too.")
    ] = False
    expires_at: Annotated[
        Instant, Meta(description="When the operator deletes it with its content. A later time renews it.")
    ] = ""
    slice_claim_name: Annotated[
        str,
        Meta(
            max_length=63,
            description="The SliceClaim in the namespace of this Subnamespace on whose nodes the child's pods run.",
        ),
    ] = ""
    adopt: Annotated[
        Adoption, Meta(description="Take an existing namespace instead of making one: to move or to import it.")
    ] = Adoption()


class SubnamespaceQuota(Model, frozen=True, kw_only=True):
    """Quota key to canonical quantity, of the child and everything below it together."""

    assigned: Annotated[dict[str, str], Meta(max_length=64)] = {}
    used: Annotated[dict[str, str], Meta(max_length=64)] = {}
    free: Annotated[dict[str, str], Meta(max_length=64)] = {}


class SubnamespaceStatus(Model, frozen=True, kw_only=True):
    """What the child is."""

    observed_generation: ObservedGeneration = 0
    namespace: Annotated[str, Meta(description="The child namespace.")] = ""
    depth: Annotated[int, Meta(description="How far below the tenant's core namespace it is; 1 right below.")] = 0
    quota: Annotated[SubnamespaceQuota, Meta(description="Totals of the child and everything below it.")] = (
        SubnamespaceQuota()
    )
    children: Annotated[int, Meta(description="How many Subnamespaces are in the child namespace.")] = 0
    first_children: Annotated[
        tuple[str, ...], Meta(max_length=3, description="The names of the first three of them; none of a Subtenant's.")
    ] = ()
    copied: Annotated[
        tuple[str, ...],
        Meta(max_length=32, description="The kinds of which the parent's objects were copied; it happens once."),
    ] = ()
    conversion: (
        Annotated[Conversion, Meta(description="How far a change of spec.isolation.controlPlane is.")] | UnsetType
    ) = UNSET
    conditions: Conditions = ()


class Subnamespace(KubernetesObject, frozen=True, kw_only=True):
    """A child of the namespace that this object is in: a namespace of its own, with a share of its parent's quota."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "subnamespaces", "Subnamespace")
    names: ClassVar[Names] = Names(short=("sub",))
    access: ClassVar[KindAccess] = KindAccess(operator=(*READ, "patch", "delete"), updates=("status",), owners=EDIT)
    validations: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.metadata.name.matches('{DNS_LABEL}') && size(self.metadata.name) <= {MAX_NAME}",
            f"must be a DNS label of at most {MAX_NAME} lower-case letters, digits and -, because the child namespace"
            " has this name with a hyphen and 16 digits behind it",
            field="metadata.name",
        ),
        SHORT,
        CONVERTED,
    )
    columns: ClassVar[tuple[Column, ...]] = (
        READY,
        REASON,
        Column("Mode", "string", ".spec.mode"),
        Column("Child", "string", ".status.namespace"),
        Column("Depth", "integer", ".status.depth", priority=1),
        Column("Control Plane", "string", ".spec.isolation.controlPlane", priority=1),
        Column("Expires", "string", ".spec.expiresAt", priority=1),
        MESSAGE,
        AGE,
    )

    spec: SubnamespaceSpec
    status: SubnamespaceStatus = SubnamespaceStatus()
