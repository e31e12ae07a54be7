"""Paths in place of the names of namespaces: `-n acme/web/staging` instead of `-n staging-1f0c9f2e6b7a4d58`.

The namespace of a Subnamespace has digits in its name that no person remembers. Every option and argument for a
namespace has the type `NAMESPACE`, and every argument for the name of an object in a namespace has the type
`NAMESPACED_NAME`: `acme/web/staging` is `staging -n acme/web`. Where a tenant or a part of it can be meant, the type is
`TENANT_OR_PATH`: `tree acme/web` is `tree -n acme/web`. `target.takes_target` resolves the paths in all of them before
the command begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import click
from typing_extensions import override

from tenantry.api.errors import Forbidden, InputError, NotFound
from tenantry.api.names import DNS_LABEL, DNS_SUBDOMAIN
from tenantry.api.subnamespace import Subnamespace

if TYPE_CHECKING:
    from tenantry.cli.target import Target
    from tenantry.kube.client import Client

_PART = re.compile(DNS_LABEL)
_LONGEST_PART = 63
_NAME = re.compile(DNS_SUBDOMAIN)
_LONGEST_NAME = 253


class NamespaceType(click.types.StringParamType):
    """A click type: the name of a namespace, or a path to it."""


NAMESPACE = NamespaceType()


class NamespacedNameType(click.types.StringParamType):
    """A click type: the name of an object in a namespace, or a path to the object, as in acme/web/staging.

    The command has the option -n, too.
    """


NAMESPACED_NAME = NamespacedNameType()


class TenantOrPathType(click.types.StringParamType):
    """A click type: the name of a tenant, or a path to a namespace of its tree.

    The command has an argument `namespace`, too: a path is the same as that.
    """


TENANT_OR_PATH = TenantOrPathType()


class TenantNameType(click.types.StringParamType):
    """A click type: the name of a tenant, for commands that do nothing with a part of its tree."""

    @override
    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        name = str(value)
        if "/" in name:
            raise InputError(
                f"{name[:80]!r} is a path to a namespace, and this command takes whole tenants: name the tenant, as in"
                " acme"
            )
        return name


TENANT_NAME = TenantNameType()


def resolved(target: Target, given: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments of the current command that paths decide, with names in place of the paths.

    Args:
        target: The cluster; it is asked only if there is a path.
        given: The arguments of the command.

    Raises:
        InputError: A path has a part that is no name, or contradicts another path or -n.
        NotFound: A path leads nowhere.
    """
    params = click.get_current_context().command.params
    wanted = {each.name or "": str(given.get(each.name or "") or "") for each in params if each.type is NAMESPACE}
    names: dict[str, object] = {}
    for each in params:
        value = given.get(each.name or "")
        texts = cast("tuple[str, ...]", value) if isinstance(value, tuple) else (str(value or ""),)
        if each.type is NAMESPACED_NAME and any("/" in text for text in texts):
            wanted["namespace"] = parent_of(texts, wanted.get("namespace", ""))
            bare = tuple(text.rpartition("/")[2] for text in texts)
            names[each.name or ""] = bare if isinstance(value, tuple) else bare[0]
        if each.type is TENANT_OR_PATH and any("/" in text for text in texts):
            wanted["namespace"] = _only_path(texts, wanted.get("namespace", ""))
            names[each.name or ""] = () if isinstance(value, tuple) else None
    namespaces = {key: text for key, text in wanted.items() if "/" in text or (names and key == "namespace")}
    return {**names, **resolve(target, namespaces)} if namespaces else {}


def _only_path(texts: Sequence[str], namespace: str) -> str:
    """Return the path that stands in place of a tenant.

    Raises:
        InputError: There is another tenant or path beside it, or -n.
    """
    path = next(text for text in texts if "/" in text)
    if len(texts) > 1:
        raise InputError(f"{path!r} is a path to a namespace: give it alone")
    if namespace:
        raise InputError(f"{path!r} is a path: leave --namespace out, or give only --namespace")
    return path


def parent_of(texts: Iterable[str], namespace: str) -> str:
    """Return the path to the one namespace in which paths lead to objects.

    Args:
        texts: The paths.
        namespace: -n; "" if it was not given.

    Raises:
        InputError: A path has a part that is no name, or they contradict each other or -n.
    """
    parents: dict[str, str] = {}
    for text in texts:
        parent, _, name = text.rpartition("/")
        if "/" in text:
            check(parent)
            if not _NAME.search(name) or len(name) > _LONGEST_NAME:
                raise InputError(f"{text[:80]!r} must be a path to an object: {name[:20]!r} is no name")
            if namespace:
                raise InputError(f"{text!r} is a path: leave --namespace out, or give only the name")
        parents[parent] = text
    if len(parents) > 1:
        one, other, *_ = parents.values()
        raise InputError(f"{one!r} and {other!r} are in different namespaces: give them to a command each")
    return next(iter(parents))


def resolve(target: Target, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the names of namespaces; arguments and errors as for `resolved`."""
    from tenantry.cli import session

    for text in wanted.values():
        check(text)
    if not any("/" in text for text in wanted.values()):
        return dict(wanted)

    async def work(client: Client) -> dict[str, str]:
        return {key: await namespace_of(client, text) for key, text in wanted.items()}

    return session.run(target, work)


def check(text: str) -> None:
    """Reject what is no path.

    Raises:
        InputError: A part is no name.
    """
    for part in text.split("/"):
        if not _PART.search(part) or len(part) > _LONGEST_PART:
            raise InputError(
                f"{text[:80]!r} must be the name of a namespace, or a path as in acme/web/staging: {part[:20]!r} is no"
                " name"
            )


async def namespace_of(client: Client, text: str) -> str:
    """Return the name of the namespace that a path leads to.

    Args:
        client: The user's.
        text: A namespace, and the Subnamespaces below it, as in acme/web/staging.

    Raises:
        NotFound: There is no such Subnamespace.
        InputError: It has no namespace yet.
        Forbidden: The user may not read the namespaces that the path passes.
    """
    here, *names = text.split("/")
    for name in names:
        try:
            found = await client.get(Subnamespace, name, here)
        except NotFound as error:
            raise NotFound(
                f"{text!r} leads nowhere: namespace {here!r} has no subnamespace {name!r};"
                f" `tenantry sub list -n {here}` lists those that there are"
            ) from error
        except Forbidden as error:
            # The owner of a Subtenant may not read the namespaces above it.
            raise Forbidden(
                f"you may not follow {text!r} through namespace {here!r}: give the name of the namespace itself, which"
                f" the context of your kubeconfig names and `tenantry my` shows; the API server said: {error}",
                status=error.status,
            ) from error
        if not found.status.namespace:
            raise InputError(
                f"{text!r} leads to no namespace yet: `tenantry wait sub {name} -n {here}` waits until there is one"
            )
        here = found.status.namespace
    return here
