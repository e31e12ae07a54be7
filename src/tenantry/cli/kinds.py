"""Tenantry's kinds and objects in the words of the command line: `tenants`, `tnt`, `tenant/acme`, `sub/web -n acme`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from tenantry.api.crd import Names
from tenantry.api.errors import InputError
from tenantry.api.kinds import KINDS
from tenantry.api.model import KubernetesObject, object_key
from tenantry.api.node import Node
from tenantry.api.wording import suggestion

Kind = type[KubernetesObject]


class ObjectSelection(NamedTuple):
    """Objects of one kind that the command line selects.

    Args:
        kind: Their kind.
        names: Their names; () for all.
        namespace: Their namespace; "" for a cluster-scoped kind, and for all namespaces.
    """

    kind: Kind
    names: tuple[str, ...]
    namespace: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of the named objects."""
        return tuple(object_key(self.namespace, name) for name in self.names)

    @property
    def listing(self) -> str:
        """Return the command that lists the existing objects."""
        place = f" -n {self.namespace}" if self.namespace else " -A" if self.kind.resource.namespaced else ""
        return f"tenantry get {self.kind.resource.plural}{place}"


def names_of(kind: Kind) -> Names:
    """Return the names of a kind."""
    return cast("Names", vars(kind)["names"])


def words_of(kind: Kind) -> tuple[str, ...]:
    """Return every word that means a kind, the usual one first."""
    return (kind.resource.plural, kind.resource.kind.lower(), *names_of(kind).short, kind.resource.full_name)


def full_name(kind: Kind, name: str) -> str:
    """Return `tenant.tenantry.dev/acme`, the name that `-o name` prints and every verb takes."""
    group = f".{kind.resource.group}" if kind.resource.group else ""
    return f"{kind.resource.kind.lower()}{group}/{name}"


def told(kind: Kind, name: str, namespace: str = "") -> str:
    """Return the name of an object in a sentence, with its namespace if it has one."""
    return f"{full_name(kind, name)} in {namespace!r}" if namespace else full_name(kind, name)


def told_key(kind: Kind, key: str) -> str:
    """Return the same for the object with a key."""
    namespace, _, name = key.rpartition("/")
    return told(kind, name, namespace)


KUBERNETES: dict[str, Kind] = {"node": Node, "nodes": Node}
"""Kinds of Kubernetes that a noun of the command line is about."""


def find_kind(word: str) -> Kind:
    """Return the kind that a word means.

    Raises:
        InputError: It means no kind.
    """
    if word.lower() in KUBERNETES:
        return KUBERNETES[word.lower()]
    for kind in KINDS:
        singular = f"{kind.resource.kind.lower()}.{kind.resource.group}"
        # Without regard to case, as kubectl: Tenant and tenants.
        if word.lower() in {*words_of(kind), singular}:
            return kind
    # Without the short names: nearly every short word resembles one of them.
    close = suggestion(word, [name for kind in KINDS for name in words_of(kind)[:2]])
    if close:
        raise InputError(f"{word!r} is not a Tenantry kind{close}")
    known = ", ".join(f"{words_of(kind)[0]} ({', '.join(words_of(kind)[1:-1])})" for kind in KINDS)
    raise InputError(
        f"{word!r} is not a Tenantry kind; kinds are {known}. Write KIND NAME, or KIND/NAME as in tenant/{word}"
    )


def parse(words: Sequence[str]) -> list[ObjectSelection]:
    """Return the objects that `KIND NAME…` or `KIND/NAME…` selects, kinds in the order of the words.

    The name of an object in a namespace may be a path, as in acme/web/staging: `place.settle` finds where it leads.

    Raises:
        InputError: A kind is unknown, a name is empty or a path to no namespace, or the two forms are mixed.
    """
    if not words:
        return []
    if "/" not in words[0]:
        first = find_kind(words[0])
        mixed = next((word for word in words[1:] if "/" in word and _is_mixed(first, word)), None)
        if mixed is not None:
            namespace = mixed.partition("/")[0]
            either = f"; if {namespace!r} is a namespace, name it with -n" if first.resource.namespaced else ""
            raise InputError(
                f"{mixed!r} stands after the kind {words[0]!r}; write KIND NAME… or KIND/NAME…, not both{either}"
            )
        return [ObjectSelection(first, tuple(dict.fromkeys(words[1:])))]
    found: dict[Kind, list[str]] = {}
    for word in words:
        kind, slash, name = word.partition("/")
        if not slash or not name:
            raise InputError(f"{word!r} must be KIND/NAME, as in tenant/acme")
        meant = find_kind(kind)
        if "/" in name and not meant.resource.namespaced:
            plural = meant.resource.plural
            raise InputError(f"{word!r} must be KIND/NAME, as in tenant/acme: {plural} are in no namespace")
        names = found.setdefault(meant, [])
        if name not in names:
            names.append(name)
    return [ObjectSelection(kind, tuple(names)) for kind, names in found.items()]


def _is_mixed(kind: Kind, word: str) -> bool:
    """Return whether a word after a kind is KIND/NAME instead of a path to an object of the kind."""
    if not kind.resource.namespaced:
        return True
    try:
        find_kind(word.partition("/")[0])
    except InputError:
        return False
    return True
