"""`tenantry vcp rotate`: requests that credentials are replaced by a field, and waits until that is done."""

from __future__ import annotations

import datetime as dt
import functools
import secrets
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING

import click
import msgspec

from tenantry.api.errors import InputError
from tenantry.api.model import Json, KubernetesObject
from tenantry.api.planecredentials import LastRotationPhase, RotationPhase, RotationScope
from tenantry.api.virtualcontrolplane import VirtualControlPlane
from tenantry.api.wording import shortened
from tenantry.cli import durations, flags, kinds, output, place, session
from tenantry.cli.controlplane import RequestHandled, group_of, read_started, wait_for_outcome, write_request
from tenantry.cli.delete import confirm
from tenantry.cli.paths import NAMESPACED_NAME
from tenantry.cli.target import Target, takes_target
from tenantry.controllers.virtualcontrolplane import rotation

if TYPE_CHECKING:
    from tenantry.kube.client import Client

_LOST = {
    RotationScope.USERS: "kubeconfigs that were handed out, and certificates of users that were requested inside; not"
    " certificates of nodes and tokens of ServiceAccounts, which only --all and completed phases end",
    RotationScope.ALL: "kubeconfigs that were handed out, all certificates that were requested inside, its authorities,"
    " and in a day all tokens of ServiceAccounts that exist now",
    RotationScope.ENCRYPTION: "the key with which it stores Secrets and ConfigMaps, under which all are stored again;"
    " kubeconfigs and certificates stay, and its process starts anew",
    RotationScope.COMPLETE: "kubeconfigs and certificates from before the rotation, with which nodes leave and"
    " join again",
}


class PhaseChoice(StrEnum):
    """A value of --phase."""

    PREPARE = "prepare"
    ISSUE = "issue"
    COMPLETE = "complete"


_LAST = {
    PhaseChoice.PREPARE: LastRotationPhase.PREPARING,
    PhaseChoice.ISSUE: LastRotationPhase.ISSUING,
    PhaseChoice.COMPLETE: LastRotationPhase.COMPLETING,
}
_ORDER = (RotationPhase.NONE, RotationPhase.PREPARING, RotationPhase.ISSUING)


class RotationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of `rotate`.

    Args:
        whole: Also replace its authorities and the key of its tokens.
        encryption: Replace the key with which it stores Secrets and ConfigMaps, and no credentials.
        phase: Replace all of them in phases, up to this one; None to replace them at once.
        force: Complete, whatever still uses the credentials of before.
        waits: Wait until no phase is left.
        quiet: Seconds without a request after which a client with a certificate of before counts no more; None to
            leave the number.
    """

    whole: bool = False
    encryption: bool = False
    phase: PhaseChoice | None = None
    force: bool = False
    waits: bool = False
    quiet: int | None = None

    def check(self) -> None:
        """Check that the options go together.

        Raises:
            InputError: They do not.
        """
        if self.encryption and (self.whole or self.phase is not None):
            raise InputError("--encryption replaces no credentials: omit --all and --phase, and run the command again")
        if self.phase is None and (self.force or self.waits or self.quiet is not None):
            raise InputError("--force, --wait and --quiet need --phase")
        if self.phase is not None and self.whole:
            raise InputError("--phase replaces everything that --all does: omit --all")
        if self.phase is not PhaseChoice.COMPLETE and (self.force or self.waits):
            raise InputError("--force and --wait need --phase complete")


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `rotate` to a command, which gets them as `given`."""

    @functools.wraps(command)
    def call(
        *args: object,
        whole: bool,
        encryption: bool,
        phase: str | None,
        force: bool,
        waits: bool,
        quiet: int | None,
        **others: object,
    ) -> None:
        chosen = PhaseChoice(phase) if phase else None
        given = RotationOptions(whole=whole, encryption=encryption, phase=chosen, force=force, waits=waits, quiet=quiet)
        given.check()
        command(*args, given=given, **others)

    options = (
        click.option("--all", "whole", is_flag=True, help="Also replace its authorities and the key of its tokens."),
        click.option(
            "--encryption",
            is_flag=True,
            help="Replace only the key with which it stores Secrets and ConfigMaps, and store all of them again.",
        ),
        click.option(
            "--phase",
            type=click.Choice([each.value for each in PhaseChoice]),
            help="Replace all of them in phases, up to this one: nothing that is used ends.",
        ),
        click.option("--force", is_flag=True, help="Complete, whatever still uses the credentials of before."),
        click.option(
            "--wait",
            "waits",
            is_flag=True,
            help="Wait until the last phase has ended. Without --force, this takes more than 25 hours, because tokens"
            " of before are valid for so long: set --timeout, as in 26h.",
        ),
        click.option(
            "--quiet",
            "quiet",
            type=durations.DURATION,
            metavar="DURATION",
            help="Time without a request after which a client with a certificate of before counts no more.",
        ),
    )
    for option in reversed(options):
        call = option(call)
    return call


class _Rotated(RequestHandled):
    """The status has the outcome of a request: at least up to a phase, and at the end of all phases without one."""

    def __init__(self, value: str, phase: RotationPhase | None) -> None:
        super().__init__("rotated")
        self._value = value
        self._phase = phase
        self.found: VirtualControlPlane | None = None

    def is_handled(self, value: VirtualControlPlane) -> bool:
        """Return whether it has."""
        self.found = value
        last, wished = value.status.last_rotation, value.status.credentials
        if self._value not in (last.requested, ""):
            return False
        is_at = self._phase is None or (last.phase is self._phase and wished.phase is self._phase)
        if self._phase is RotationPhase.ISSUING:
            is_at = is_at and bool(wished.issued)
        # With little to wait for, it has gone further already.
        return is_at or (last.phase is RotationPhase.NONE and wished.phase is RotationPhase.NONE)


@click.command()
@takes_target
@click.argument("called", metavar="NAME", type=NAMESPACED_NAME)
@place.takes_namespace("Namespace of the tenant (default: the namespace of the context).")
@takes_options
@flags.yes_option
@durations.timeout_option("2m", "Deadline for the outcome, as in 30s or 5m.")
def rotate(target: Target, *, called: str, namespace: str, given: RotationOptions, yes: bool, timeout: int) -> None:
    r"""Replace the credentials of a virtual control plane; kubeconfigs handed out before are worth nothing afterwards.

    Without options, certificates of users that were requested inside end, too, but neither certificates of nodes, with
    which an administrator inside may have given rights to others, nor tokens of ServiceAccounts: --all and a completed
    --phase end those. After the removal of an owner, use --all.

    Its process starts anew, which ends requests and watches that are open. Pods keep working: with --all, for a day,
    in which their tokens are renewed and programs have to read the authority of the API server again. With --phase,
    kubeconfigs and certificates of before are valid until nothing uses them any more.

    \b
      tenantry vcp rotate web -n acme
      tenantry vcp kubeconfig web -n acme > web.kubeconfig
      tenantry vcp rotate web -n acme --phase complete
    """
    replace(target, called, place.parent(target, namespace), given, yes=yes, seconds=timeout)


def replace(
    target: Target,
    called: str,
    where: str,
    given: RotationOptions,
    *,
    yes: bool,
    seconds: int,
    kind: type[KubernetesObject] = VirtualControlPlane,
) -> None:
    """Replace the credentials of a control plane, and wait until that is done, or until its phase is in force.

    Args:
        target: The cluster.
        called: The name of the control plane.
        where: Its namespace.
        given: The options.
        yes: Do not ask.
        seconds: The deadline.
        kind: What the request is written into, and messages name: the control plane, or the cluster of its name.

    Raises:
        TenantryError: They are not replaced, or not in time: why.
    """

    async def work(client: Client) -> None:
        found = await read_started(client, called, where, kind)
        if given.phase is not None:
            await _in_phases(client, found, given, yes=yes, seconds=seconds, kind=kind)
            return
        scope = RotationScope.ALL if given.whole else RotationScope.USERS
        if given.encryption:
            scope = RotationScope.ENCRYPTION
            if rotation.is_pending(found):
                raise InputError(
                    f"{kinds.told(kind, called, where)} has a rotation that is not done: wait until status.lastRotation"
                    " has it, and run the command again"
                )
        told = kinds.told(kind, called, where)
        output.talk(f"{told}: {_LOST[scope]}")
        if not yes:
            confirm("Replace them? This cannot be undone.", refused="nothing was replaced")
        value = f"{scope}@{secrets.token_hex(8)}"
        await write_request(client, kind, found, {"rotation": {"request": value}})
        await wait_for_outcome(client, found, _Rotated(value, None), seconds=seconds)
        if given.encryption:
            output.talk(f"{told} stores all Secrets and ConfigMaps under a new key")
            return
        output.talk(f"{told} has new credentials: `{group_of(kind)} kubeconfig {called} -n {where}` prints them")

    session.run(target, work)


async def _in_phases(
    client: Client,
    found: VirtualControlPlane,
    given: RotationOptions,
    *,
    yes: bool,
    seconds: int,
    kind: type[KubernetesObject],
) -> None:
    """Bring a control plane to a phase, and print what still uses the credentials of before.

    Raises:
        TenantryError: It does not come there, or not in time: why.
    """
    meta, phase = found.metadata, given.phase or PhaseChoice.COMPLETE
    told = kinds.told(kind, meta.name, meta.namespace)
    before = found.status.credentials.phase
    spec: Json = {"lastPhase": _LAST[phase].value}
    if given.quiet is not None:
        spec["quietSeconds"] = given.quiet
    value = ""
    if given.force:
        if before is RotationPhase.NONE:
            raise InputError(f"{told} is in no phase: there is nothing to complete; omit --force")
        if not found.status.credentials.issued:
            # Nothing has new credentials, so that it would end every client.
            raise InputError(
                f"{told} is in phase {before}, and its clients have no new credentials yet: run"
                f" `{group_of(kind)} rotate {meta.name} -n {meta.namespace} --phase issue` first"
            )
        used = rotation.remaining(found, dt.datetime.now(dt.UTC))
        output.talk(f"{told}: {_LOST[RotationScope.COMPLETE]}; still used by: {shortened(used) or 'nothing'}")
        if not yes:
            confirm("Complete the rotation? This cannot be undone.", refused="nothing was replaced")
        value = f"{RotationScope.COMPLETE}@{secrets.token_hex(8)}"
    elif before is RotationPhase.NONE:
        value = f"{RotationScope.GRADUAL}@{secrets.token_hex(8)}"
    if value:
        spec["request"] = value
    await write_request(client, kind, found, {"rotation": spec})
    is_end = given.force or given.waits
    reached = RotationPhase.PREPARING if phase is PhaseChoice.PREPARE else RotationPhase.ISSUING
    # One that is further does not go back.
    at = None if is_end else max(reached, before, key=_ORDER.index)
    handled = _Rotated(value, at if at is not None else RotationPhase.NONE)
    await wait_for_outcome(client, found, handled, seconds=seconds)
    now = handled.found or found
    if now.status.credentials.phase is RotationPhase.NONE:
        output.talk(f"{told} trusts only its new credentials")
        return
    output.talk(f"{told} is in phase {now.status.credentials.phase}: credentials from before are valid, too")
    if now.status.credentials.phase is RotationPhase.ISSUING:
        again = f"`{group_of(kind)} kubeconfig {meta.name} -n {meta.namespace}` prints the new one"
        output.talk(f"still used: {shortened(rotation.remaining(now, dt.datetime.now(dt.UTC))) or 'nothing'}; {again}")
