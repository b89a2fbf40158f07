"""WEB-3: the page is one file that needs nothing else."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from html import unescape

from oncecast.playback.packing import pack
from oncecast.playback.page_writer import MODULES, PAGE, hash_of, html, import_map, read
from tests.playback.pinging import calls


def test_file_holds_the_recording_and_all_modules() -> None:
    """WEB-3"""
    packed = pack(calls(1))
    page = html(packed, "<run> & more")
    found = re.search(r'id="recording">([^<]*)<', page)
    assert found is not None
    assert b64decode(found[1]) == packed
    assert zlib.decompress(packed)
    assert "<title>&lt;run&gt; &amp; more</title>" in page
    assert "%" + "RECORDING%" not in page
    imports = json.loads(import_map())["imports"]
    for name in MODULES:
        encoded = imports[f"playback/{name}"].partition(",")[2]
        assert b64decode(encoded).decode() == (PAGE / name).read_text()
    assert sorted(MODULES) == sorted(path.name for path in PAGE.glob("*.js"))


def test_policy_allows_only_the_scripts_and_the_style_of_the_file() -> None:
    """WEB-3"""
    page = html(b"", "x")
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert found is not None
    policy = unescape(found[1])
    assert policy.startswith("default-src 'none'; script-src data: 'sha256-")
    assert "unsafe" not in policy
    for kind, text in re.findall(
        r'<(script type="(?:importmap|module)"|style)>(.*?)</', page, re.S
    ):
        assert hash_of(text) in policy, kind


def test_texts_have_enough_contrast() -> None:
    """WEB-3"""
    style = read("playback.css")
    for theme in re.findall(r":root[^{]*\{\s*(--dark: \d.*?)\}", style, re.S):
        colors = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", theme))
        for ink in ("text", "muted", "accent", "danger", "success", "warning"):
            for ground in ("surface", "ground", "raised"):
                assert contrast(colors[ink], colors[ground]) >= 4.5, (ink, ground)
        assert contrast(colors["accent-ink"], colors["accent"]) >= 4.5
        assert contrast(colors["danger-ink"], colors["danger"]) >= 4.5
        assert contrast(colors["danger"], colors["danger-soft"]) >= 4.5
        assert contrast(colors["success"], colors["success-soft"]) >= 4.5


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, as WCAG defines it."""
    low, high = sorted((lightness(one), lightness(other)))
    return (high + 0.05) / (low + 0.05)


def lightness(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_page_refers_to_no_other_address() -> None:
    """WEB-3"""
    for path in PAGE.iterdir():
        text = path.read_text()
        assert not re.findall(r"https?://(?!www\.w3\.org)", text), path.name
        assert "innerHTML" not in text, path.name
