"""OPS-1: the /metrics page, and the dashboard and alert rules that use it."""

from __future__ import annotations

import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from oncecast import blocking
from oncecast.broker import subscription as subscriptions
from oncecast.broker.index import Index
from oncecast.broker.live_slots import LiveSlots
from oncecast.kernel.histogram import BOUNDS, Histogram
from oncecast.node import metrics
from oncecast.node.metrics import COUNTER, HISTOGRAM, Metric, page
from tests.live.test_serve import PATIENCE, Process
from tools.check_docs import ROOT

MONITORING = ROOT / "deploy" / "monitoring"
HTTP = re.compile(r"http at=127\.0\.0\.1:(\d+)")
SAMPLE = re.compile(r'^(\w+)(\{(?:\w+="(?:[^"\\\n]|\\.)*",?)*\})? (\S+)$')


def test_samples_of_a_metric_stand_together_with_escaped_labels() -> None:
    """OPS-1"""
    found = page(
        [
            Metric("a_total", COUNTER, "About a.", 1, (("topic", 'say "hi"\\\n'),)),
            Metric("b_total", COUNTER, "About b.", 2),
            Metric("a_total", COUNTER, "About a.", 3, (("topic", "x"),)),
        ]
    )
    assert found.body.splitlines()[3:] == [
        "# HELP a_total About a.",
        "# TYPE a_total counter",
        r'a_total{topic="say \"hi\"\\\n"} 1',
        'a_total{topic="x"} 3',
        "# HELP b_total About b.",
        "# TYPE b_total counter",
        "b_total 2",
    ]


def test_histogram_counts_add_up() -> None:
    """OPS-1"""
    seen = Histogram()
    for seconds in (0.0001, 0.00011, 99.0):
        seen.observe(seconds)
    found = list(metrics.histogram("t_seconds", "About t.", seen, (("group", "g"),)))
    assert [each.value for each in found[: len(BOUNDS)]] == [1] + [2] * (len(BOUNDS) - 1)
    assert found[-3] == Metric(
        "t_seconds", HISTOGRAM, "About t.", 3, (("group", "g"), ("le", "+Inf")), "_bucket"
    )
    assert found[-2].value == seen.total
    assert (found[-1].suffix, found[-1].value) == ("_count", 3)


def test_lag_in_seconds_is_the_age_of_the_oldest_unacknowledged_message() -> None:
    """OPS-1"""
    live = LiveSlots()
    index, found = Index(live), subscriptions.Subscription(0, 1)
    for slot, at in enumerate((1_000_000, 5_000_000)):
        live.add(slot)
        index.append(slot, 10, 100, at)

    def values(cursor: int) -> tuple[float, float]:
        found.cursor = cursor
        shown = metrics.subscription_values(index, found, 9.0)
        return shown["lag_messages"], shown["lag_seconds"]

    assert values(0) == (20, 8.0)
    assert values(10) == (10, 4.0)
    assert values(20) == (0, 0.0)
    index.drop_below(10)
    assert values(0) == (10, 4.0)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the page of a node with traffic."""
    data = str(tmp_path_factory.mktemp("node") / "data")
    process = Process("--data", data, "--http", "127.0.0.1:0")
    http_port = next(found[1] for line in process.lines if (found := HTTP.search(line)))
    try:
        with blocking.connect(f"127.0.0.1:{process.port}") as client:
            reader = client.subscribe("orders", 'the "audit"', auto_ack=False)
            client.put_many("orders", [b"1", b"2", b"3"])
            assert reader.get(timeout=10) is not None
            jobs = client.work("emails", "sender")
            client.put_many("emails", [b"1", b"2"])
            assert jobs.get(timeout=10) is not None
            where = f"http://127.0.0.1:{http_port}/metrics"
            with urllib.request.urlopen(where, timeout=PATIENCE) as answer:
                yield answer.read().decode()
    finally:
        process.end(signal.SIGTERM)
        assert process.process.stderr is not None
        process.process.stderr.close()


@pytest.mark.long
def test_page_follows_the_text_format(shown: str) -> None:
    """OPS-1"""
    kinds: dict[str, str] = {}
    for line in shown.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        elif not line.startswith("# HELP "):
            found = SAMPLE.match(line)
            assert found, line
            float(found[3])
            name = found[1]
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            assert kinds.get(name) in ("counter", "gauge") or kinds.get(base) == "histogram"


@pytest.mark.long
@pytest.mark.parametrize(
    "sample",
    [
        'oncecast_topic_messages_total{topic="orders"} 3',
        'oncecast_subscription_lag_messages{topic="orders",subscription="the \\"audit\\""} 3',
        'oncecast_subscription_attached{topic="orders",subscription="the \\"audit\\""} 1.0',
        'oncecast_subscription_in_flight_messages{topic="emails",subscription="sender"} 2.0',
        "oncecast_topics_without_metrics 0",
    ],
)
def test_page_shows_topics_and_subscriptions(shown: str, sample: str) -> None:
    """OPS-1"""
    assert sample in shown.splitlines()


@pytest.mark.long
def test_page_shows_deliveries_and_durations(shown: str) -> None:
    """OPS-1"""
    values = dict(line.rsplit(" ", 1) for line in shown.splitlines() if line[0] != "#")
    where = '{topic="orders",subscription="the \\"audit\\""}'
    assert int(values[f"oncecast_subscription_delivered_messages_total{where}"]) == 3
    assert int(values["oncecast_put_seconds_count"]) >= 2
    assert int(values["oncecast_sync_seconds_count"]) >= 2
    assert float(values["oncecast_sync_seconds_sum"]) > 0


def expressions() -> Iterator[str]:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    for group in rules["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


@pytest.mark.long
def test_dashboard_and_alerts_use_metrics_and_labels_that_exist(shown: str) -> None:
    """OPS-1"""
    missing = shown + redelivery_metrics()
    names = {line.split("{")[0].split(" ")[0] for line in missing.splitlines() if line[0] != "#"}
    used = {name for each in expressions() for name in re.findall(r"\boncecast_\w+", each)}
    assert len(used) > 15
    assert used <= names
    labels = set(re.findall(r'(\w+)="', shown)) | {"instance", "job", "group"}
    for each in expressions():
        for grouped in re.findall(r"by \(([^)]*)\)", each):
            assert {name.strip() for name in grouped.split(",")} <= labels


def redelivery_metrics() -> str:
    """Return the metrics that a node without workers or redeliveries does not show."""
    found = [
        Metric(f"oncecast_subscription_{name}", COUNTER, about, 0)
        for name, about in metrics.SUBSCRIPTIONS.items()
    ]
    return page(found).body


def test_prometheus_example_loads_the_alert_rules() -> None:
    """OPS-1"""
    example = yaml.safe_load(Path(MONITORING / "prometheus.yaml").read_text())
    assert example["rule_files"] == ["alerts.yaml"]
    (scrape,) = example["scrape_configs"]
    assert 'job="oncecast"' in next(each for each in expressions() if each.startswith("up"))
    assert scrape["job_name"] == "oncecast"
