"""Help for terminals, drawn by rich-click; without a terminal click prints it as plain text.

rich-click patches click's decorators, so it must be loaded before the verbs are imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich_click import RichCommandPanel, RichContext, RichGroup, RichHelpConfiguration, RichHelpFormatter
from rich_click.patch import patch
from typing_extensions import override

from tenantry.cli.main import TASKS, LazyVerbs

if TYPE_CHECKING:
    import click
    from rich.markdown import Markdown
    from rich.style import StyleType
    from rich.text import Text

CONFIGURATION = RichHelpConfiguration(
    theme="default-slim",
    max_width=110,
    default_string=r"\[default: {}]",
    options_table_column_types=["opt_short", "opt_long", "metavar", "help"],
    padding_helptext_first_line=(0, 0, 1, 0),
    text_paragraph_linebreaks="\n\n",
    # rich-click would also write escape sequences into the logs of GitHub Actions.
    force_terminal=None,
)


class Formatter(RichHelpFormatter):
    """Keeps the indentation of examples, which the base removes."""

    @override
    def rich_text(self, text: str | Text | Markdown, style: StyleType = "") -> Text | Markdown:
        from rich.text import Text

        return self.highlighter(Text(text.rstrip(), style)) if isinstance(text, str) else text


class RichVerbs(LazyVerbs, RichGroup):  # pyright: ignore[reportIncompatibleMethodOverride] - rich-click narrows click's contexts
    """The verbs in a panel for each task."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - as click.Group takes them
        panels = [RichCommandPanel(task, commands=list(verbs)) for task, verbs in TASKS.items()]
        super().__init__(panels=panels, **attributes)


def with_rich_help(plain: click.Group) -> RichVerbs:
    """Return the same command with rich help for itself and for all verbs that are imported from now on."""
    patch(CONFIGURATION)
    RichContext.formatter_class = Formatter
    settings = {**plain.context_settings, "rich_help_config": CONFIGURATION}
    return RichVerbs(
        name=plain.name, help=plain.help, params=plain.params, callback=plain.callback, context_settings=settings
    )
