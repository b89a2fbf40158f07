"""Serve the files of the console.

A request never becomes a path on the disk. It can only name a file that the folder listed.
"""

from __future__ import annotations

import time
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from oncecast.errors import NoSuchPage
from oncecast.web.exchange import Plain

FOLDER = Path(__file__).parent / "console"
INDEX = "index.html"
LIST_AFTER = 1.0  # seconds after which the folder is listed again
FILE_BYTES_MAX = 4 << 20

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}


class File(NamedTuple):
    modified: int
    kind: str
    data: bytes
    tag: str


class Files:
    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._files: dict[str, File] = {}
        self._listed = 0.0

    def answer(self, segments: list[str], headers: dict[str, str]) -> Plain:
        """Return the file at this path, or raise NoSuchPage."""
        self._list()
        name = "/".join(segments) or INDEX
        file = self._files.get(name)
        if file is None:
            raise NoSuchPage
        cached = (("ETag", file.tag), ("Cache-Control", "no-cache"))
        given = [each.strip() for each in headers.get("if-none-match", "").split(",")]
        if file.tag in given or f"W/{file.tag}" in given:
            return Plain(304, file.kind, b"", cached)
        return Plain(200, file.kind, file.data, cached)

    def _list(self) -> None:
        """Read the files that are new or have changed."""
        now = time.monotonic()
        if self._listed and now - self._listed < LIST_AFTER:
            return
        self._listed = now
        found: dict[str, File] = {}
        for path in sorted(self._folder.rglob("*")):
            kind = KINDS.get(path.suffix)
            if kind is None or not path.is_file() or path.is_symlink():
                continue
            name, status = path.relative_to(self._folder).as_posix(), path.stat()
            known = self._files.get(name)
            if known is not None and known.modified == status.st_mtime_ns:
                found[name] = known
            elif status.st_size <= FILE_BYTES_MAX:
                data = path.read_bytes()
                tag = f'"{sha256(data).hexdigest()[:32]}"'
                found[name] = File(status.st_mtime_ns, kind, data, tag)
        self._files = found
