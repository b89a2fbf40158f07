"""Check the files in deploy/ against the program: settings, flags, paths and users."""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import yaml

from oncecast.node.config import PREFIX, Settings
from oncecast.node.derived import ROOT, shared
from tools.check_docs import ROOT as PROJECT

DEPLOY = PROJECT / "deploy"
NAMES = {f"{PREFIX}{each.name}".upper() for each in fields(Settings)}
ENTRY = "/opt/oncecast/deploy/start-node.sh"
KINDS = ["Service", "Service", "PodDisruptionBudget", "NetworkPolicy", "StatefulSet"]


def variables(text: str) -> set[str]:
    return set(re.findall(rf"{PREFIX}[A-Z_]+", text))


@pytest.mark.parametrize(
    "name", ["Dockerfile", "compose.yaml", "kubernetes.yaml", "start-node.sh", "probe.py"]
)
def test_deployment_files_use_settings_that_exist(name: str) -> None:
    """OPS-4"""
    used = variables((DEPLOY / name).read_text())
    assert used
    assert used <= NAMES


def test_compose_file_starts_three_nodes_of_one_group() -> None:
    """OPS-4"""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    services: dict[str, Any] = compose["services"]
    assert list(services) == ["node1", "node2", "node3"]
    for name, service in services.items():
        environment = service["environment"]
        nodes = environment["ONCECAST_NODES"].split(",")
        assert nodes == [f"{each}:7400" for each in services]
        assert environment["ONCECAST_SERVE_ADVERTISE"] == f"{name}:7400"
        assert service["command"] == [ENTRY]
        assert service["volumes"] == [f"{name}:/data"]
        assert "ports" not in service  # without TLS, only the private network reaches a node
    assert compose["networks"]["nodes"]["internal"] is True


def documents() -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())


def test_kubernetes_file_runs_three_nodes_on_three_machines() -> None:
    """OPS-4"""
    found = list(documents())
    assert [each["kind"] for each in found] == KINDS
    stateful = found[-1]["spec"]
    pod = stateful["template"]["spec"]
    (container,) = pod["containers"]
    values = {each["name"]: each.get("value", "") for each in container["env"]}
    name, service = found[-1]["metadata"]["name"], stateful["serviceName"]
    assert values["ONCECAST_NODES"].split(",") == [
        f"{name}-{n}.{service}:7400" for n in range(stateful["replicas"])
    ]
    assert container["command"] == [ENTRY]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert found[0]["metadata"]["name"] == service
    assert found[0]["spec"]["publishNotReadyAddresses"] is True
    labels = stateful["template"]["metadata"]["labels"]
    for each in found:
        selector = each["spec"].get("selector") or each["spec"]["podSelector"]
        assert selector.get("matchLabels", selector) == labels


def test_image_runs_as_the_user_of_the_kubernetes_file() -> None:
    """OPS-4"""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    user = next(line.split()[1] for line in lines if line.startswith("USER"))
    pod = list(documents())[-1]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == int(user)
    for name in re.findall(r"deploy/([\w.-]+)", "\n".join(lines)):
        assert (DEPLOY / name).exists()


def test_systemd_unit_starts_a_node_with_the_example_settings() -> None:
    """OPS-4"""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "oncecast.service")
    service = unit["Service"]
    assert service["ExecStart"].split()[1:] == ["serve", "--config", "/etc/oncecast/oncecast.toml"]
    example = (DEPLOY / "oncecast.toml").read_text()
    settings = tomllib.loads(re.sub(r"(?m)^# (?=\w+ = )", "", example).replace("listen", "_", 1))
    assert {name for name in settings if name != "_"} <= {each.name for each in fields(Settings)}
    assert str(settings["data"]).startswith(f"/var/lib/{service['StateDirectory']}/")


@pytest.mark.parametrize(
    ("mode", "owner", "user", "found"),
    [
        (0o600, 1, 1, False),
        (0o640, 1, 1, True),
        (0o604, 1, 1, True),
        (0o440, ROOT, 1, False),
        (0o460, ROOT, 1, True),
        (0o444, ROOT, 1, True),
        (0o640, ROOT, ROOT, True),
    ],
)
def test_only_the_group_of_a_file_of_root_may_read_a_secret(
    mode: int, owner: int, user: int, found: bool
) -> None:
    """SEC-4: Kubernetes provides secrets in files that root owns and the process's group reads."""
    assert shared(mode, owner, user) is found
