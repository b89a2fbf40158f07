"""Remove one rule of the front end at a time, and check that a unit test or a storm detects it."""

from __future__ import annotations

import pytest

from oncecast.kafka.brokers import Brokers
from oncecast.kafka.coordinators import Coordinators
from oncecast.kafka.fetching import Fetch, Fetching
from oncecast.kafka.making import Making
from oncecast.kafka.membership import Group
from oncecast.kafka.offsets import Offsets
from oncecast.kafka.partitions import Partitions
from oncecast.kafka.producing import Producer, Producing
from oncecast.kafka.recovering import Recovery
from oncecast.kafka.transactions import Transactions
from tests.kafka.test_storm import storm
from tests.mutants import Detector, Mutant, assert_detected, replaced

pytestmark = pytest.mark.mutants


def unit(name: str) -> Detector:
    """Return a detector that runs a file of unit tests."""

    def run(seed: int) -> None:
        quiet = ("-q", "-x", "-p", "no:cacheprovider", "--no-header", "--hypothesis-profile=quick")
        assert pytest.main([f"tests/kafka/test_{name}.py", *quiet, "-m", "not long"]) == 0

    return run


def rule(text: str, owner: type, method: str, code: str, instead: str, test: str) -> Mutant:
    detector, count = (storm, 30) if test == "storm" else (unit(test), 1)
    return Mutant(text, replaced(owner, method, code, instead), detector, count)


MUTANTS = [
    rule(
        "a sequence that has wrapped continues",
        *(Producer, "unwrapped", "max(turns, 0)", "0", "producing"),
    ),
    rule(
        "a batch behind a delayed one is sent again",
        *(Producing, "_send", "if earlier or producer.queue:", "if False:", "producing"),
    ),
    rule(
        "a transactional batch needs a transactional id",
        *(Producing, "_put", "header.transactional and transactional_id is None", "False"),
        "producing",
    ),
    rule(
        "each producer gets its own id",
        *(Producing, "init_producer_id", "self._host.rng.getrandbits(ID_BITS)", "7", "storm"),
    ),
    rule(
        "the bytes in flight are limited",
        *(Producing, "_put", "if self._bytes and", "if False and", "producing"),
    ),
    rule(
        "a client cannot ask for other acknowledgements",
        *(Producing, "produce", "request.acks not in ACKS", "False", "producing"),
    ),
    rule(
        "a fetch session of another broker is refused",
        *(Fetching, "fetch", "request.session_id != 0 and request.session_epoch > 0", "False"),
        "fetching",
    ),
    rule(
        "a lower offset is a seek",
        *(Offsets, "_move", "offset >= position.cursor", "True", "offsets"),
    ),
    rule(
        "each generation attaches again",
        *(Offsets, "attach", "and position.holder == holder", "", "offsets"),
    ),
    rule(
        "a commit of an earlier generation is refused",
        *(Group, "fault_of", "generation == self.generation", "True", "membership"),
    ),
    rule(
        "members agree on a protocol",
        *(Group, "_fault", "request.protocol_type != self.protocol_type or not common", "False"),
        "membership",
    ),
    rule(
        "a silent member is removed",
        *(Group, "_is_late", "now >= member.expires", "False", "membership"),
    ),
    rule(
        "a newer producer fences an older one",
        *(Transactions, "_find", "known is not None and known.epoch > epoch", "False"),
        "transactions",
    ),
    rule(
        "a transaction moves no group backwards",
        *(Transactions, "_consume", "upto < position.cursor", "False", "transactions"),
    ),
    rule(
        "a repeated commit learns the outcome",
        *(Transactions, "end", "Code.NONE if known.committed else ABORTED", "Code.NONE"),
        "transactions",
    ),
    rule(
        "a lost transaction must be aborted by its client",
        *(Recovery, "_learned", "State.READY if outcome.committed else State.LOST"),
        *("State.READY", "transactions"),
    ),
    rule(
        "an open transaction of an earlier front end is aborted",
        *(Recovery, "_learned", "number % 2 == 0", "False", "transactions"),
    ),
    rule(
        "a deleted offset is out of range",
        *(Fetch, "_answer", "outcome.offset != partition.fetch_offset", "False", "fetching"),
    ),
    rule(
        "a leader that may have changed is looked up",
        *(Brokers, "leader", "or process_of(self._node_of(topic)) != process", "", "brokers"),
    ),
    rule(
        "a request for another coordinator is refused",
        *(Coordinators, "guide", "if not here:", "if False:", "brokers"),
    ),
    rule(
        "a partition that does not exist is refused",
        *(Partitions, "place", "0 <= index < count", "True", "partitions"),
    ),
    rule(
        "a group that is added while a topic grows gets all partitions",
        *(Making, "_grow", "isinstance(outcome, errors.Fenced) and tries > 1", "False"),
        "partitions",
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_missing_rule_fails_a_test(mutant: Mutant) -> None:
    """KAF-2 KAF-3"""
    assert_detected(mutant)
