"""A hook of MkDocs: adds the pages and examples outside docs/ to the site, and points links at them.

The sources link to each other by their paths in the repository, so that links also work in a checkout. The site has
docs/ as its root: the hook resolves each link in the repository, and writes it as a path between two pages of the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "THREAT_MODEL.md": "threat-model.md",
}
"""Pages outside docs/: path in the repository to path in the site."""

_COMMENT = re.compile(r"\A<!--.*?-->\s*", re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#:\s]+)(?=[)#])")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace `FOLDER/*` in the navigation by the pages of that folder, sorted by name."""
    config.nav = [
        {title: _expanded(pages) if isinstance(pages, str) else pages}
        for section in config.nav or []
        for title, pages in section.items()
    ]
    return config


def _expanded(pages: str) -> str | list[str]:
    if not pages.endswith("/*"):
        return pages
    docs = ROOT / "docs"
    return sorted(path.relative_to(docs).as_posix() for path in docs.glob(f"{pages}.md"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and the examples that are outside docs/."""
    examples = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*") if path.is_file()}
    for source, target in {**PAGES, **{path: path for path in examples}}.items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links between pages of the site instead of paths in the repository."""
    del config, files
    here = page.file.src_uri
    source = next((path for path, target in PAGES.items() if target == here), f"docs/{here}")

    def rewrite(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["path"]))
        # Both roots agree below docs/; the few pages outside have an entry of their own.
        in_site = PAGES.get(target, target.removeprefix("docs/"))
        return posixpath.relpath(in_site, posixpath.dirname(here) or ".")

    # MkDocs takes the title of a page from its heading, but only if that comes first.
    return _LINK.sub(rewrite, _COMMENT.sub("", markdown))
