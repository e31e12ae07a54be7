"""Old spellings of flags and commands: they work for one release, with a warning on stderr.

    @spellings.option("--subnamespace", "names", old="--for", multiple=True)     a flag
    slice_.add_command(spellings.moved(create, "claim", "tenantry slice create"))   a command

Help, completion and the reference page show the new spelling only. Delete an old spelling with the release after the
one in which it became old.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from typing_extensions import override

from tenantry.cli import output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])


class RespelledOption(click.Option):
    """An option that is also read under its old spelling.

    Args:
        args: As for click.Option.
        old: The old flag.
        attributes: As for click.Option.
    """

    def __init__(self, *args: Any, old: str = "", **attributes: Any) -> None:  # noqa: ANN401 - as click.Option takes them
        super().__init__(*args, **attributes)
        self.old = old

    @property
    def _old_name(self) -> str:
        return f"{self.name} {self.old}"

    @override
    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        action = "append" if self.multiple else "store"
        parser.add_option(obj=self, opts=[self.old], dest=self._old_name, action=action, nargs=self.nargs)

    @override
    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        given = opts.get(self._old_name)
        if given is not None and not ctx.resilient_parsing:
            warn(self.old, self.opts[0])
        name = self.name or ""
        if given is not None and self.multiple:
            opts = {**opts, name: [*given, *opts.get(name, ())]}
        elif given is not None:
            opts = {name: given, **opts}
        return super().consume_value(ctx, cast("Any", opts))


def option(*declarations: str, old: str, **attributes: Any) -> Callable[[F], F]:  # noqa: ANN401 - as click.option takes them
    """Return the decorator of an option with an old spelling; everything else as for click.option."""
    return click.option(*declarations, cls=RespelledOption, old=old, **attributes)


def moved(command: click.Command, name: str, now: str) -> click.Command:
    """Return a hidden command under an old name.

    Args:
        command: The command under its new name.
        name: The old name.
        now: The new spelling, as in `tenantry slice create`.
    """
    old = copy.copy(command)
    old.name, old.hidden = name, True
    call = command.callback

    def warned(*args: object, **given: object) -> object:
        context = click.get_current_context()
        warn(context.command_path, now)
        return call(*args, **given) if call is not None else None

    old.callback = warned
    return old


def warn(old: str, now: str) -> None:
    """Print that a spelling is old."""
    output.talk(f"warning: `{old}` is now `{now}`; the old spelling ends with the next release")
