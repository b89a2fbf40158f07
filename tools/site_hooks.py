"""Adapt our pages to the documentation site that `make docs` builds.

Links to source files become plain text, because source files are not part of the site. The
changelog and the contributors' guide are in the project root, so they are added to the site.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
ROOT_PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages in the project root."""
    for name, page in ROOT_PAGES.items():
        content = LINK.sub(lambda link: _from_root(link), (ROOT / name).read_text())
        files.append(File.generated(config, page, content=content))
    return files


def _from_root(link: re.Match[str]) -> str:
    """Convert a link on a page in the project root to one that works in docs/."""
    target = link["target"]
    moved = target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}"
    return link[0] if "://" in target or target.startswith("#") else f"[{link['text']}]({moved})"


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Adapt the links that point outside docs/."""
    folder = PurePosixPath(page.file.src_uri).parent
    return LINK.sub(lambda link: _within_site(link, folder), markdown)


def _within_site(link: re.Match[str], folder: PurePosixPath) -> str:
    path, _, fragment = link["target"].partition("#")
    if "://" in path or not path:
        return link[0]
    parts: list[str] = []
    above = 0
    for part in (folder / path).parts:
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            above += 1
    if not above:
        return link[0]
    name = "/".join(parts)
    if name in ROOT_PAGES:
        up = "../" * len(folder.parts)
        return f"[{link['text']}]({up}{ROOT_PAGES[name]}{'#' if fragment else ''}{fragment})"
    return link["text"] if link["text"].startswith("`") else f"`{name}`"
