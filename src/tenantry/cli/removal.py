"""Removes an owner of a tenant or a subnamespace, and ends the tokens that this owner may hold.

    spec.owners without the owner ─► the operator takes its rights away ─► ServiceAccounts are created again

A token is bound to the uid of its ServiceAccount, so tokens of the earlier uid end, whatever their lifetime.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click
import msgspec
from typing_extensions import Unpack

from tenantry.api.errors import AlreadyExists, Forbidden, InputError, NotFound, TenantryError
from tenantry.api.kubernetes import Namespace, RoleBinding
from tenantry.api.marks import INHERITED_FROM, MADE_BY, TREE_SUFFIX
from tenantry.api.model import Json, ObjectMeta
from tenantry.api.owner import Owner, OwnerKind
from tenantry.api.subnamespace import Subnamespace
from tenantry.api.tenant import Tenant
from tenantry.api.wording import shortened
from tenantry.cli import durations, flags, kinds, output, ownership, session
from tenantry.cli.delete import confirm
from tenantry.cli.kinds import ObjectSelection
from tenantry.cli.target import Target

if TYPE_CHECKING:
    from tenantry.kube.client import Client
    from tenantry.views.removal import NamespaceReach, TokenAccount

F = TypeVar("F", bound=Callable[..., Any])

_KEPT = ("labels", "annotations", "ownerReferences", "finalizers")
"""The metadata of a ServiceAccount that is created again."""
_CACHED = 11.0
"""Seconds for which the API server may accept a token after its end: TokenSuccessCacheTTL is 10 s by default
(k8s.io/kubernetes/pkg/kubeapiserver/options/authentication.go), and no review is possible without the token."""
_ROUNDS = 8


class Choices(TypedDict):
    """The options of a removal, as `remove_owner` takes them."""

    owner_text: str
    ends: bool | None
    yes: bool
    timeout: int
    form: str | None


def removal_options(command: F) -> F:
    """Give a command the argument OWNER and the options of a removal."""
    decorators = (
        click.argument("owner_text", metavar="[KIND:]OWNER"),
        click.option(
            "--end-tokens/--keep-tokens",
            "ends",
            default=None,
            help="Create the listed ServiceAccounts again, which ends their tokens (default: ask on a terminal).",
        ),
        flags.yes_option,
        durations.timeout_option("60s", "Deadline for the end of the owner's rights, as in 30s or 5m."),
        output.output_option("json"),
    )
    return functools.reduce(lambda made, decorate: decorate(made), reversed(decorators), command)


def run(target: Target, asked: ObjectSelection, **choices: Unpack[Choices]) -> None:
    """Remove an owner and print the result.

    Raises:
        TenantryError: See `remove_owner`.
    """
    owner = flags.parse_owner(choices["owner_text"], "OWNER")
    ends, yes, seconds = choices["ends"], choices["yes"], choices["timeout"]
    session.interrupt_on_signals()
    done = session.run(target, lambda client: remove_owner(client, asked, owner, ends=ends, yes=yes, seconds=seconds))
    if choices["form"]:
        output.write(output.to_json(done))


class RemovedOwner(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a removal, as -o json prints it.

    Args:
        owner: The owner, as in User:ada.
        accounts: The ServiceAccounts of which this owner could request tokens.
        ended: Their tokens were ended.
        bindings: The RoleBindings that still name the owner, as namespace/name.
        cluster_bindings: The ClusterRoleBindings that name the owner; empty if the user may not list them.
        notes: What could not be read.
    """

    owner: str
    accounts: Sequence[TokenAccount]
    ended: bool
    bindings: Sequence[str]
    cluster_bindings: Sequence[str]
    notes: Sequence[str]


async def remove_owner(
    client: Client, asked: ObjectSelection, owner: Owner, *, ends: bool | None, yes: bool, seconds: int
) -> RemovedOwner:
    """Remove an owner, show what this owner may still hold, and end its tokens.

    Args:
        client: The client of the cluster.
        asked: The one Tenant or Subnamespace.
        owner: The owner; an earlier owner may be named, too, to end the tokens later.
        ends: Create the ServiceAccounts again; None asks on a terminal, and does not otherwise.
        yes: Do not ask for confirmation.
        seconds: The deadline of the operator's work.

    Raises:
        InputError: It is the last owner, or not an owner and tokens are to stay, or nothing shows that it was an owner,
            or a confirmation is needed and stdin is not a terminal.
        TenantryError: The owner's rights did not end in time, or some ServiceAccounts could not be created again.
    """
    from tenantry.views import removal
    from tenantry.views.permitted import NO_CLUSTER_BINDINGS

    value = await ownership.read_owned(client, asked)
    told, word = kinds.told_key(asked.kind, value.key), ownership.word(owner)
    is_owner = owner in value.spec.owners
    rest = [each for each in value.spec.owners if each != owner]
    root = _root(value, told, rest)
    if not is_owner and not ends and (yes or ends is False or not sys.stdin.isatty()):
        have = shortened(map(ownership.word, rest)) or "none"
        raise InputError(
            f"{word} is not in spec.owners of {told}, which has {have}: to end the tokens of an earlier owner, add"
            " --end-tokens"
        )
    found = await removal.reach(client, root, owner, is_owner=is_owner)
    wide = await removal.cluster_wide(client, owner)
    # No object carries the name of a group that only requested tokens: its members are users.
    if not (is_owner or found.is_known or wide or owner.kind is OwnerKind.GROUP):
        raise InputError(
            f"{word} is not in spec.owners of {told}, no RoleBinding there names it, and it created no ServiceAccount"
            " or token Secret there: check the name; to end the tokens of an owner that left no trace, add it to"
            " spec.owners first, and remove it with --end-tokens"
        )
    _show(word, found)
    if not is_owner:
        output.talk(f"{word} is not in spec.owners of {told}")
    if not yes:
        question = f"Remove {word} from the owners of {told}" if is_owner else ""
        ends = _choose(question, len(found.accounts), ends=ends)
    if is_owner:
        await ownership.write(client, value, rest)
        output.talk(f"{word} removed from the owners of {told}")
    if ends:
        await _await_end(client, root, owner, seconds=seconds)
        # Until then, the owner could create more of them.
        found = await removal.read(client, found.namespaces, owner)
        await _end_all(client, found.namespaces, owner, seconds=seconds)
    notes = [NO_CLUSTER_BINDINGS] if wide is None else []
    _show_bindings(word, found.bindings, wide or (), notes)
    if found.accounts and not ends:
        output.talk(
            f"tokens that {word} requested stay valid until they expire, and token Secrets for ever; the same command"
            " with --end-tokens ends them"
        )
    return RemovedOwner(
        owner=word,
        accounts=found.accounts,
        ended=bool(ends),
        bindings=found.bindings,
        cluster_bindings=wide or (),
        notes=notes,
    )


def _root(value: Tenant | Subnamespace, told: str, rest: Sequence[Owner]) -> str:
    """Return the first namespace of which the owner loses its rights.

    Raises:
        InputError: A tenant would have no owner, or a child has no namespace yet.
    """
    if isinstance(value, Tenant):
        if not rest:
            only = ownership.word(value.spec.owners[0])
            raise InputError(f"{only} is the only owner of {told}: add another first, or suspend or delete the tenant")
        return value.metadata.name
    if not value.status.namespace:
        raise InputError(f"{told} has no namespace yet: change spec.owners with `tenantry kubectl -- edit`")
    return value.status.namespace


def _show(word: str, found: NamespaceReach) -> None:
    """Print the ServiceAccounts and their pods on stderr: before the question, and beside data on stdout."""
    if not found.accounts:
        output.talk(f"there is no ServiceAccount of which {word} could request tokens")
        return
    output.talk(f"ServiceAccounts of which {word} could request tokens:")
    rows = [
        (each.namespace, each.name, output.cell(each.made_by), str(len(each.secrets)), str(len(each.pods)))
        for each in found.accounts
    ]
    headers = ("NAMESPACE", "SERVICEACCOUNT", "MADE BY", "TOKEN SECRETS", "PODS")
    for line in output.plain(output.table(headers, rows), encoding=sys.stderr.encoding or "utf-8"):
        output.talk(f"  {line}")


def _show_bindings(word: str, bindings: Iterable[str], cluster_bindings: Iterable[str], notes: Iterable[str]) -> None:
    """Print the bindings that still name the owner, and what could not be read."""
    kept = [*(f"RoleBinding {each}" for each in bindings), *(f"ClusterRoleBinding {each}" for each in cluster_bindings)]
    if kept:
        # A binding that names the owner again would make the removal and the end of tokens useless.
        output.talk(
            f"{word} keeps the rights of {shortened(kept, in_order=True)}: remove it from"
            f" {'its' if len(kept) == 1 else 'their'} subjects, and end the tokens after that"
        )
    for note in notes:
        output.talk(f"note: {note}")


def _choose(question: str, count: int, *, ends: bool | None) -> bool | None:
    """Ask for confirmation, and return whether tokens are to end.

    Args:
        question: What is removed; "" if nothing is.
        count: The number of ServiceAccounts.
        ends: The choice of the command line; None for none.

    Raises:
        InputError: A confirmation is needed, and stdin is not a terminal.
        TenantryError: The answer to the first question is no.
    """
    again = f"create {'the ServiceAccount' if count == 1 else f'all {count} ServiceAccounts'} again"
    if ends:
        confirm(f"{question} and {again}?" if question else f"{again[0].upper()}{again[1:]}?", "nothing was changed")
    elif question:
        confirm(f"{question}?", "nothing was changed")
    if ends is None and count and sys.stdin.isatty():
        return click.confirm(f"{again[0].upper()}{again[1:]}, which ends their tokens?", err=True)
    return ends


# -- the end of rights ----------------------------------------------------------------------------


async def _await_end(client: Client, root: str, owner: Owner, *, seconds: int) -> None:
    """Wait until the operator has taken the owner's rights away: until then, it could request new tokens.

    Raises:
        TenantryError: The deadline has passed.
    """
    from tenantry.cli.following import follow, only
    from tenantry.controllers.tenantnamespace import OWNER_BINDING
    from tenantry.engine.tasks import all_of
    from tenantry.views.permitted import list_permitted
    from tenantry.views.removal import names

    word, selectors = ownership.word(owner), {"labelSelector": f"{root}{TREE_SUFFIX}"}
    tree = await list_permitted(client, Namespace, selectors=selectors) or [Namespace(metadata=ObjectMeta(name=root))]
    by_name = {each.metadata.name: each for each in tree}
    own = await all_of(list_permitted(client, Subnamespace, namespace=name) for name in by_name)
    # A Subnamespace may name the owner itself, for all that is below it.
    still = [each.status.namespace for group in own for each in group or () if owner in each.spec.owners]
    for name in still:
        output.talk(
            f"{ownership.word(owner)} is still an owner of namespace {name!r}, by spec.owners of its Subnamespace"
        )

    async def is_gone(namespace: str) -> None:
        selected = only((OWNER_BINDING,))
        async with aclosing(follow(client, RoleBinding, selectors=selected, namespace=namespace)) as changes:
            async for found in changes:
                if not any(names(each, owner) for each in found.values()):
                    return

    ended = [
        name
        for name, each in by_name.items()
        if not any(f"{above}{TREE_SUFFIX}" in each.metadata.labels for above in still if above)
    ]
    try:
        async with asyncio.timeout(seconds):
            for name in ended:
                await is_gone(name)
    except TimeoutError:
        raise TenantryError(
            f"{word} still has rights after {durations.text(seconds)}, so no token was ended; is the operator running?"
        ) from None


# -- the end of tokens ----------------------------------------------------------------------------


async def _end_all(client: Client, namespaces: Sequence[str], owner: Owner, *, seconds: int) -> None:
    """Delete all ServiceAccounts of some namespaces, and create them again when no earlier token is accepted.

    One by one would not do: a token of an account that is still there requests one of an account that is new.

    Raises:
        TenantryError: Some were not deleted, or were deleted and not created again; stderr has the manifests of these.
    """
    taken: dict[tuple[str, str], Json] = {}
    accounts: dict[tuple[str, str], TokenAccount] = {}
    failed: dict[tuple[str, str], str] = {}
    try:
        await _delete_all(client, namespaces, owner, taken=taken, accounts=accounts, failed=failed)
        for key in list(taken):
            try:
                await _create(client, taken[key], seconds=seconds)
                del taken[key]
            except TenantryError as error:
                failed[key] = f"deleted, but not created again: {error}"
    finally:
        # Also after a signal: they exist nowhere else.
        if taken:
            output.talk("these ServiceAccounts were deleted; create them with `kubectl create -f`:")
            for manifest in taken.values():
                output.talk("---\n" + msgspec.yaml.encode(manifest).decode().rstrip())
    pods = [f"{each.namespace}/{pod}" for each in accounts.values() for pod in each.pods]
    done = len(accounts.keys() - failed.keys())
    words = "ServiceAccount created again: its" if done == 1 else "ServiceAccounts created again: their"
    output.talk(f"{done} {words} earlier tokens are refused")
    if pods:
        output.talk(f"restart these pods, whose tokens have ended: {shortened(pods)}")
    secrets = [f"{each.namespace}/{name}" for each in accounts.values() for name in each.secrets]
    if secrets:
        output.talk(f"Kubernetes deletes these token Secrets: {shortened(secrets)}")
    if failed:
        lines = [f"{'/'.join(key)}: {text}" for key, text in failed.items()]
        listed = shortened(lines, separator="\n  ")
        raise TenantryError(
            f"these ServiceAccounts were not created again:\n  {listed}\n"
            "with their tokens, others may have been requested: when these are gone, run the same command again"
        )


async def _delete_all(
    client: Client,
    namespaces: Sequence[str],
    owner: Owner,
    *,
    taken: dict[tuple[str, str], Json],
    accounts: dict[tuple[str, str], TokenAccount],
    failed: dict[tuple[str, str], str],
) -> None:
    """Delete ServiceAccounts until a list has none but those that controllers create again at once.

    Args:
        client: The client of the cluster.
        namespaces: The namespaces.
        owner: The owner who was removed.
        taken: Gets the manifest of each that was deleted.
        accounts: Gets each that was found.
        failed: Gets the fault of each that was not deleted.

    Raises:
        TenantryError: New ones appear in each round.
    """
    from tenantry.views import removal

    uids: set[str] = set()
    times: Counter[tuple[str, str]] = Counter()
    for _ in range(_ROUNDS):
        count = len(uids)
        for each in (await removal.read(client, namespaces, owner)).accounts:
            key = (each.namespace, each.name)
            accounts.setdefault(key, each)
            # A token of an account that was deleted may have requested one of its first repetition, not of later ones.
            if key in failed or times[key] > 1:
                continue
            try:
                before = await _delete(client, each, uids)
            except TenantryError as error:
                failed[key] = f"its tokens may be valid: {error}"
                continue
            if before:
                taken.setdefault(key, before)
                metadata = before["metadata"]
                recurs = each.name == "default" or INHERITED_FROM in metadata.get("labels", {})
                times[key] += 1 if recurs else 0
        if len(uids) == count:
            return
        if not count:
            output.talk("ServiceAccounts deleted; waiting until the API server has forgotten their tokens")
        await asyncio.sleep(_CACHED)
    raise TenantryError("new ServiceAccounts appear while their tokens are ended: who creates them still has rights")


async def _delete(client: Client, account: TokenAccount, uids: set[str]) -> Json | None:
    """Delete one ServiceAccount, and return its manifest; None if it is gone, or was deleted before.

    Raises:
        TenantryError: The API server refuses it.
    """
    from tenantry.kube import wire
    from tenantry.views.removal import ACCOUNTS

    namespace, name = account.namespace, account.name
    try:
        before: Json = msgspec.json.decode(await client.request("GET", wire.path(ACCOUNTS, namespace, name)))
        uid = before["metadata"]["uid"]
        if uid in uids:
            return None
        if before["metadata"].get("finalizers"):
            # While finalizers keep a deleted ServiceAccount, its tokens are accepted for another minute.
            freed = {"metadata": {"uid": uid, "finalizers": None}}
            await client.merge_patch(ACCOUNTS, namespace, name, freed)
        await client.delete(ACCOUNTS, namespace, name, uid=uid)
    except NotFound:
        return None  # with its tokens
    uids.add(uid)
    kept: Json = {key: value for key, value in before["metadata"].items() if key in _KEPT}
    # The API server sets the stamp, to the user of this request.
    kept["annotations"] = {key: text for key, text in kept.get("annotations", {}).items() if key != MADE_BY}
    rest = {key: value for key, value in before.items() if key not in {"metadata", "apiVersion", "kind"}}
    if "secrets" in rest:
        rest["secrets"] = [each for each in rest["secrets"] if each.get("name") not in account.secrets]
    metadata = {"name": name, "namespace": namespace, **kept}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata, **rest}


async def _create(client: Client, manifest: Json, *, seconds: int) -> None:
    """Create one ServiceAccount again.

    Raises:
        TenantryError: The API server refuses it, or finalizers keep the earlier object.
    """
    from tenantry.kube import wire
    from tenantry.views.removal import ACCOUNTS

    namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
    path = wire.path(ACCOUNTS, namespace, name)
    end = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            # First: the quota counts a creation that is refused because the object exists.
            now: Json = msgspec.json.decode(await client.request("GET", path))
            break
        except NotFound:
            pass
        try:
            await client.request("POST", wire.path(ACCOUNTS, namespace), body=wire.encode_json(manifest))
        except Forbidden as error:
            # Kubernetes lowers the count of a ResourceQuota some time after a deletion.
            if "exceeded quota" not in str(error) or asyncio.get_running_loop().time() > end:
                raise
            await asyncio.sleep(1)
        except AlreadyExists:
            continue
        else:
            return
    # Kubernetes creates `default` again by itself, and the operator copies that are inherited.
    if "deletionTimestamp" in now["metadata"]:
        held = shortened(now["metadata"].get("finalizers", ()))
        raise TenantryError(
            f"new finalizers keep it ({held}), and its tokens are valid for a minute: remove them, and end tokens again"
        )
    kept = {key: value for key, value in manifest["metadata"].items() if key in _KEPT}
    rest = {key: value for key, value in manifest.items() if key not in {"metadata", "apiVersion", "kind"}}
    await client.merge_patch(ACCOUNTS, namespace, name, {"metadata": kept, **rest})
