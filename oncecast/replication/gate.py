"""The gate decides which messages a replica accepts from nodes outside its group.

    from any node                        Offer
    from a node that names this group    requests; see below
    from the newcomer catching up        Heard, Accepted, Reject: answers to this leader
    from a node that was asked           Chosen, Lacking, Recalled, Ahead, Piece, Guide

The gate drops and counts all other messages. Members may send any message, but a replica accepts
the answers in the last line only if it asked for them, even from members.

A group's number is random, and its leader reveals it only to members and to the newcomer catching
up. A node that names the group must therefore have been admitted at some point. It may be a leader
elected while this replica was offline, or a member that does not know of its removal. A nonmember
that knows no group number accepts requests from its contacts and from nodes to which it has offered
itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from oncecast.kernel.protocol import NodeId
from oncecast.replication import messages as m
from oncecast.replication.other_group import OtherGroup
from oncecast.replication.roster import Roster
from oncecast.replication.state import Fetching, Membership

Request = m.Canvass | m.Prepare | m.Accept | m.Beat | m.Want | m.WantPiece | m.Recall
ANSWERS = (m.Chosen, m.Lacking, m.Recalled, m.Ahead, m.Piece)
FROM_NEWCOMER = (m.Heard, m.Accepted, m.Reject)


@dataclass(eq=False)
class Gate:
    membership: Membership
    fetching: Fetching
    roster: Roster
    other_group: OtherGroup
    refused: int = 0  # number of messages refused so far

    def admits(self, sender: NodeId, message: m.Message) -> bool:
        """Return whether to accept this message from a nonmember."""
        admitted = self._admits(sender, message)
        self.refused += not admitted
        return admitted

    def _admits(self, sender: NodeId, message: m.Message) -> bool:
        if sender == self.membership.me or isinstance(message, m.Offer):
            return True
        if isinstance(message, Request):
            group = self.membership.group
            if group or self.membership.config.members:
                return message.group == group or self._claims(message)
            return sender in self.membership.contacts or self.fetching.awaits(sender)
        if isinstance(message, FROM_NEWCOMER):
            return sender == self.roster.newcomer
        if isinstance(message, m.Guide):
            return self.fetching.awaits(sender) or self.other_group.awaits()
        return isinstance(message, ANSWERS) and self.fetching.awaits(sender)

    def _claims(self, message: Request) -> bool:
        """Return whether the sender claims to lead another group, which it must prove."""
        return isinstance(message, m.Beat) and message.group != 0

    def asked_for(self, sender: NodeId) -> bool:
        """Return whether this replica asked `sender` for an answer. If not, count a refusal."""
        asked = self.fetching.awaits(sender)
        self.refused += not asked
        return asked
