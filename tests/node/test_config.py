"""Test where settings come from, their types, and the errors for invalid ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oncecast.errors import BadSetting
from oncecast.node.config import TABLE, Settings, load
from oncecast.node.replica import idle_us

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"


def test_flags_override_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text('data = "file"\ncluster = "file"\nhttp = "127.0.0.1:1"\ndrain_timeout = 3\n')
    environment = {
        "ONCECAST_SERVE_DATA": "environment",
        "ONCECAST_SERVE_CLUSTER": "environment",
        "ONCECAST_SERVE_INSECURE": "true",
        "ONCECAST_OTHER": "not ours",
    }
    assert load({"data": "flag"}, environment, str(file)) == Settings(
        data="flag",
        cluster="environment",
        http="127.0.0.1:1",
        insecure=True,
        drain_timeout=3.0,
    )


def test_environment_can_name_the_config_file(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text("snapshot_bytes = 5000\n")
    assert load({}, {"ONCECAST_SERVE_CONFIG": str(file)}).snapshot_bytes == 5000


@pytest.mark.parametrize(
    ("environment", "file", "fact"),
    [
        ({"ONCECAST_SERVE_LISTN": "x"}, "", "ONCECAST_SERVE_LISTN: unknown setting; did you mean"),
        ({"ONCECAST_SERVE_XYZZY": "x"}, "", "choose from data, listen"),
        ({}, "lisen = 'x'", "did you mean listen?"),
        ({}, "listen = 7", "7 is not a string; put it in quotes"),
        ({}, "insecure = 1", "1 is not true or false"),
        ({}, "snapshot_bytes = true", "True is not an integer"),
        ({}, "snapshot_bytes = 0", "0 is not an integer above 0; the default is"),
        ({}, "listen", "use a readable TOML file"),
        ({"ONCECAST_SERVE_INSECURE": "maybe"}, "", "'maybe' is not true or false"),
        ({"ONCECAST_SERVE_LOG_LEVEL": "loud"}, "", "'loud' is not one of debug, info"),
        ({"ONCECAST_SERVE_TLS_CA": "ca.pem"}, "", "set all three or none"),
        ({"ONCECAST_SERVE_REPLICAS": "10"}, "", "replicas is 10"),
    ],
)
def test_error_for_an_invalid_setting_names_its_source_and_its_value(
    tmp_path: Path, environment: dict[str, str], file: str, fact: str
) -> None:
    path = tmp_path / "node.toml"
    path.write_text(file)
    with pytest.raises(BadSetting, match=re.escape(fact)):
        load({}, environment, str(path))


def test_settings_page_lists_every_setting_with_default_and_help() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`(.*)`)? ?\| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(name, str(known.default), known.about) for name, known in TABLE.items()]


def test_idle_producers_can_be_kept_forever() -> None:
    """SVC-9"""
    assert idle_us(load({"producer_idle": "2.5"}, {}).producer_idle) == 2_500_000
    assert idle_us(load({"producer_idle": "inf"}, {}).producer_idle) == 0
    with pytest.raises(BadSetting, match="'0' is not a number above 0"):
        load({"producer_idle": "0"}, {})
