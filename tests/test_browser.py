"""Test how the tests of the console find Chromium."""

from __future__ import annotations

import sys

import pytest

from tools import browser


def test_missing_chromium_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(browser, "find", lambda: None)
    monkeypatch.setattr(browser, "can_install", lambda: False)
    browser.main()
    error = capsys.readouterr().err
    assert error.startswith("browser: the tests of the console need Chromium")
    assert browser.VARIABLE in error


def test_chromium_is_installed_only_if_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(browser.VARIABLE, raising=False)
    found: list[str] = []
    monkeypatch.setattr(browser, "find", lambda: found[0] if found else None)
    monkeypatch.setattr(browser, "can_install", lambda: True)
    monkeypatch.setattr(browser, "install", lambda: found.append("/usr/bin/chromium"))
    browser.main()
    browser.main()
    assert found == ["/usr/bin/chromium"]


def test_chosen_browser_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(browser.VARIABLE, sys.executable)
    assert browser.find() == sys.executable
    monkeypatch.delenv(browser.VARIABLE)
    assert browser.find(lambda name: f"/bin/{name}") == "/bin/chromium"
    assert browser.find(lambda name: None) is None
