"""Write the hashes of each pinned release's files into lock files.

    python -m tools.lock_hashes requirements.lock ...

A lock file lists all files of a release, so that it works on every platform and version of Python.
The package index is the one that pip uses by default. The lock file does not contain its address.
"""

from __future__ import annotations

import os
import re
import sys
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version
from pip._internal.models.index import PyPI

PIN = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>[0-9][0-9a-z.]*)")


def pins(text: str) -> dict[str, str]:
    """Return the version of each package that a lock file pins."""
    found = map(PIN.match, text.splitlines())
    return {each["name"]: each["version"] for each in found if each}


class Links(HTMLParser):
    """Collects the links on a package index page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def version_of(filename: str) -> Version | None:
    """Return the version of a wheel or source archive, or None for any other file."""
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[1]
        return parse_sdist_filename(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


def hashes(page: str, version: str) -> list[str]:
    """Return the hashes of all files in a release, from the package's index page."""
    links = Links()
    links.feed(page)
    found = set()
    for link in links.found:
        address, fragment = urldefrag(link)
        algorithm, _, digest = fragment.partition("=")
        if algorithm == "sha256" and version_of(unquote(address).rpartition("/")[2]) == Version(
            version
        ):
            found.add(digest)
    return sorted(found)


def locked(text: str, page_of: Callable[[str], str]) -> str:
    """Return a lock file with the hashes of each pin, and keep the comments of the old text."""
    comments = [line for line in text.splitlines() if line.startswith("#")]
    return "\n".join([*comments, *_lines(pins(text).items(), page_of)]) + "\n"


def _lines(pinned: Iterable[tuple[str, str]], page_of: Callable[[str], str]) -> Iterator[str]:
    for name, version in sorted(pinned):
        found = hashes(page_of(name), version)
        if not found:
            sys.exit(f"the package index has no file of {name} {version} with a SHA-256 hash")
        yield " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{each}" for each in found)])


def from_index(name: str) -> str:
    index = os.environ.get("PIP_INDEX_URL", PyPI.simple_url).rstrip("/")
    asked = urllib.request.Request(f"{index}/{name}/", headers={"Accept": "text/html"})
    with urllib.request.urlopen(asked, timeout=180) as reply:
        page: bytes = reply.read()
    return page.decode()


def main(files: list[str]) -> None:
    for file in map(Path, files):
        file.write_text(locked(file.read_text(), from_index))


if __name__ == "__main__":
    main(sys.argv[1:])
