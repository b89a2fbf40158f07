"""Write the page that plays a recording, as one self-contained file of HTML.

The page's modules import each other by bare names such as `playback/format.js`. An import map
resolves these names to the modules inside the file. The content security policy lists the hashes of
the file's scripts, so the browser runs no other script and loads nothing from the network.
"""

from __future__ import annotations

import json
from base64 import b64encode
from functools import cache
from hashlib import sha256
from html import escape
from pathlib import Path

PAGE = Path(__file__).parent / "page"
MODULES = (
    "format.js",
    "model.js",
    "palette.js",
    "stage.js",
    "slots.js",
    "lanes.js",
    "timeline.js",
    "panel.js",
    "playback.js",
)
NEWLINE = "\n"
START = 'import "playback/playback.js";'


def html(packed: bytes, title: str) -> str:
    """Return the page with a packed recording."""
    start, imports = START, import_map()
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src data: {hash_of(imports)} {hash_of(start)}",
            f"style-src {hash_of(NEWLINE + read('playback.css'))}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    parts = {
        "TITLE": escape(title),
        "POLICY": escape(policy),
        "STYLE": read("playback.css"),
        "IMPORTS": imports,
        "START": start,
        "RECORDING": b64encode(packed).decode(),
    }
    page = read("playback.html")
    for name, text in parts.items():
        page = page.replace(f"%{name}%", text)
    return page


@cache
def import_map() -> str:
    """Return the import map: each module of the page as a data URL."""
    urls = {
        f"playback/{name}": f"data:text/javascript;base64,{b64encode(read(name).encode()).decode()}"
        for name in MODULES
    }
    return json.dumps({"imports": urls})


def hash_of(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


@cache
def read(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")
