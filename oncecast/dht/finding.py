"""Finding who owns a key, and taking a payload there: the part of Chord that reads the ring.

A lookup ends with the owner's own word: the one before the key says who comes next, and that one
says whether it is so. Where it knows somebody nearer, that one is asked; where whoever should own
the key is said to be dead, the next one looks after that itself before it answers.

Only `Member.owns` makes an answer certain. A member that cannot rule out that it owns the key, and
knows nobody nearer, answers with a hint, so that a lookup ends even where links are cut.
"""

from __future__ import annotations

from random import Random

from oncecast.dht.calls import Caller, Silent
from oncecast.dht.events import (
    Confirm,
    FindRoot,
    Found,
    Hop,
    Hopped,
    Locate,
    Near,
    Nearer,
    RootFound,
    Route,
    Routed,
    Unsure,
)
from oncecast.dht.identifiers import Key, Place, up_to
from oncecast.dht.lookup import STEPS_MAX, Fixing, Lookup, Purpose, Reuniting, Root
from oncecast.dht.member import Member
from oncecast.kernel.protocol import NodeId, Value

HASTE = 0.2  # of a time-out: so long one waits for news that takes a round trip
DOUBLINGS = 4  # of that, at most
NEARER_MAX = 16  # places in an answer: the further ones serve when the nearest are dead


class Again(Value):
    """Timer: a lookup or a payload that found nobody to go to tries again."""

    number: int


class Seeking:
    """Call: a node on the way was asked who comes before the key."""

    def __init__(self, lookup: Lookup, place: Place | None) -> None:
        self.lookup, self.place = lookup, place


class Confirming:
    """Call: the owner was asked."""

    def __init__(self, lookup: Lookup, owner: Place) -> None:
        self.lookup, self.owner = lookup, owner


class Hopping:
    """Call: a payload was given to the next node, or to several if the first was slow to answer.

    All of these calls have one number: whoever answers first, it is on its way.
    """

    def __init__(self, number: int, key: Key, payload: bytes) -> None:
        self.number, self.key, self.payload = number, key, payload
        self.avoid: dict[NodeId, None] = {}
        self.came_again = False  # a copy of it, which goes on after this one


class Finder(Caller):
    def __init__(self, me: NodeId, rng: Random, *, answer_within: float, lookups_max: int) -> None:
        super().__init__(me, rng, answer_within)
        self.lookups_max = lookups_max
        self.members: dict[Key, Member] = {}
        self.lookups: dict[int, Lookup] = {}
        self.hopping: dict[int, Hopping] = {}
        self._payloads: dict[tuple[Key, bytes], Hopping] = {}  # the same, by what they carry
        self.refused = 0  # requests beyond lookups_max

    # -- what the rest of Chord does with what is found --

    def found_before(self, lookup: Lookup, before: Place, successors: tuple[Place, ...]) -> None:
        """A lookup that is not for the layer above has found the one before its key."""

    def doubt_predecessor(self, member: Member) -> None:
        """Somebody says that the one before us is dead."""

    def stabilize(self, member: Member) -> None:
        """Somebody depends on who we say comes after us."""

    def miss_predecessor(self, member: Member) -> None:
        """Note whether no predecessor has told the member of itself for long."""

    # -- lookups --

    def find_root(self, request: FindRoot) -> None:
        if len(self.lookups) >= self.lookups_max:
            self.refused += 1
        elif self.owner_of(request.key) is not None:
            self.emit(RootFound(request.key, self.me, 0, 0))
        elif self._may_be_here(request.key):
            self.emit(RootFound(request.key, self.me, 0, 0, certain=False))
        else:
            self.look_up(request.key, Root())

    def look_up(self, key: Key, purpose: Purpose, *contacts: NodeId) -> None:
        number = self.next_number()
        lookup = self.lookups[number] = Lookup(number, key, purpose, contacts)
        self._set_out(lookup)

    def _set_out(self, lookup: Lookup) -> None:
        if not lookup.contacts:
            self._learn(
                lookup, self._locate(lookup.number, lookup.key, lookup.avoid, lookup.itself)
            )
        self._advance(lookup)

    def _learn(self, lookup: Lookup, answer: Near | Nearer) -> None:
        if isinstance(answer, Near):
            lookup.found_before(answer.place, answer.successors, self.me)
        else:
            lookup.learn(answer.places)

    def _locate(
        self, number: int, key: Key, avoid: dict[NodeId, None], itself: bool
    ) -> Near | Nearer:
        """What we know of the way to a key."""
        member = self._member_before(key)
        if member is None:
            return Nearer(number, ())
        if member.is_before(key):
            if itself:
                self.stabilize(member)
            return Near(number, member.place, member.successors)
        if not itself and (listed := member.listed_owner(key)) is not None:
            before, at = listed
            if any(place.node not in avoid for place in member.successors[at:]):
                return Near(number, before, member.successors[at:])
        nearer = member.preceding(key, NEARER_MAX, avoid)
        if itself and not nearer:
            self.stabilize(member)  # who was to come after us is said to be dead
        return Nearer(number, nearer)

    def _member_before(self, key: Key) -> Member | None:
        """Our position that is nearest before the key."""
        ids = [id for id, member in self.members.items() if member.joined]
        if not ids:
            return None
        return self.members[max(ids, key=lambda id: (id < key, id))]

    def owner_of(self, key: Key) -> Member | None:
        for member in self.members.values():
            if member.joined and member.owns(key):
                return member
        return None

    def _may_be_here(self, key: Key) -> bool:
        return any(member.joined and member.may_own(key) for member in self.members.values())

    def _advance(self, lookup: Lookup) -> None:
        lookup.steps += 1
        if lookup.before is not None:
            if not isinstance(lookup.purpose, Root):
                self._end(lookup)
                self.found_before(lookup, lookup.before, tuple(lookup.owners))
                return
            owner = lookup.owner()
            if owner is not None:
                self._confirm(lookup, owner)
                return
            lookup.before = None  # all that came after it are dead
        if lookup.contacts_left:
            self._seek(lookup, lookup.contacts_left.pop(0), None)
        elif lookup.steps <= STEPS_MAX and (place := lookup.next()) is not None:
            self._seek(lookup, place.node, place)
        else:
            self._begin_again(lookup)

    def _seek(self, lookup: Lookup, node: NodeId, place: Place | None) -> None:
        number = self.next_number()
        message = Locate(lookup.key, number, tuple(lookup.avoid), lookup.itself)
        self.call(node, number, message, Seeking(lookup, place))

    def _confirm(self, lookup: Lookup, owner: Place) -> None:
        number = self.next_number()
        assert lookup.before is not None
        avoid, via = tuple(lookup.avoid), lookup.before.id
        message = Confirm(lookup.key, owner.id, number, avoid, via)
        self.call(owner.node, number, message, Confirming(lookup, owner))

    def _begin_again(self, lookup: Lookup) -> None:
        if isinstance(lookup.purpose, Fixing | Reuniting):
            self._end(lookup)  # the next turn will try it
        elif lookup.unavoided:
            self.later(self.answer_within, Again(lookup.number))
        else:
            # Somebody was found dead on the way, so there may be another way round it.
            lookup.begin_again(forgive=False)
            self._set_out(lookup)

    def again(self, number: int) -> None:
        if number in self.hopping:
            self._pass_on(self.hopping[number])
        lookup = self.lookups.get(number)
        if lookup is None:
            return
        before = lookup.before
        lookup.begin_again(forgive=True)
        if before is None or before.node == self.me:
            self._set_out(lookup)
        else:
            lookup.learn((before,))
            self._advance(lookup)

    def _end(self, lookup: Lookup) -> None:
        del self.lookups[lookup.number]

    # -- answers --

    def sought(self, seeking: Seeking, answer: Near | Nearer) -> None:
        lookup = seeking.lookup
        lookup.answered(seeking.place)
        self._learn(lookup, answer)
        self._advance(lookup)

    def confirmed(self, confirming: Confirming, answer: Found | Nearer | Unsure) -> None:
        lookup, owner = confirming.lookup, confirming.owner
        match answer:
            case Found():
                self._end(lookup)
                way = (lookup.hops, lookup.timeouts, lookup.doubts)
                self.emit(RootFound(lookup.key, owner.node, *way, answer.certain))
            case Unsure():
                # Next time the one before it is asked itself; it may have told the owner by then,
                # or only when who is dead has been waited for.
                lookup.itself = True
                patience = min(HASTE * 2**lookup.doubted, 2.0)
                lookup.doubted = min(lookup.doubted + 1, DOUBLINGS)
                self.later(patience * self.answer_within, Again(lookup.number))
            case Nearer(_, places):
                if places:
                    lookup.avoid.pop(places[0].node, None)
                    lookup.owners.insert(0, places[0])
                else:
                    lookup.owners.clear()
                if lookup.steps > STEPS_MAX or not places:
                    lookup.before = None
                    self._begin_again(lookup)
                else:
                    self._advance(lookup)

    def not_answered(self, what: Seeking | Confirming | Hopping, peer: NodeId) -> None:
        if isinstance(what, Hopping):
            what.avoid[peer] = None
            self._pass_on(what)
        else:
            what.lookup.silent(peer)
            self._advance(what.lookup)

    # -- what others ask --

    def locate(self, sender: NodeId, message: Locate) -> None:
        avoid = dict.fromkeys(message.avoid)
        self.send(sender, self._locate(message.number, message.key, avoid, message.itself))

    def confirm(self, sender: NodeId, message: Confirm) -> None:
        member = self.members.get(message.at)
        if member is None or not member.joined:
            self.dropped += 1  # of an earlier life: our silence says that it is over
            return
        self.miss_predecessor(member)
        number, before = message.number, member.predecessor
        if member.owns(message.key):
            self.send(sender, Found(number))
        elif member.may_own(message.key, message.via):
            self.send(sender, Found(number, certain=False))
        elif not member.settled or before is None:
            self.send(sender, Unsure(number))
        elif not up_to(message.via, message.key, message.at):
            self.send(sender, Nearer(number, ()))
        elif before.node in message.avoid:
            self.send(sender, Unsure(number))
            self.doubt_predecessor(member)
        else:
            self.send(sender, Nearer(number, (before,)))

    # -- payloads, hop by hop --

    def route(self, request: Route) -> None:
        if len(self.hopping) >= self.lookups_max:
            self.refused += 1
            return
        hopping = self._set_off(request.key, request.payload)
        if hopping is not None:
            self._pass_on(hopping)

    def _set_off(self, key: Key, payload: bytes) -> Hopping | None:
        """Begin to pass a payload on; if a copy of it waits here for an answer, after that one.

        Where answers take longer than `answer_within`, every node on the way makes another copy;
        without this rule they would multiply.
        """
        known = self._payloads.get((key, payload))
        if known is not None:
            known.came_again = True
            return None
        hopping = Hopping(self.next_number(), key, payload)
        self.hopping[hopping.number] = self._payloads[key, payload] = hopping
        return hopping

    def _pass_on(self, hopping: Hopping) -> None:
        """To the owner if it is in our list, else to the nearest before the key."""
        key = hopping.key
        root = self.owner_of(key) is not None
        if root or self._may_be_here(key):
            self._arrived(hopping)
            self.emit(Routed(key, hopping.payload, self.me, root, hint=not root))
            return
        member = self._member_before(key)
        step = None if member is None else self._next_hop(member, key, hopping.avoid)
        if step is None:
            hopping.avoid.clear()
            self.later(self.answer_within, Again(hopping.number))
            return
        place, via = step
        self._hop(hopping, place.node, via)

    def _next_hop(
        self, member: Member, key: Key, avoid: dict[NodeId, None]
    ) -> tuple[Place, Key] | None:
        listed = member.listed_owner(key)
        if listed is not None:
            before, at = listed
            for place in member.successors[at:]:
                if place.node not in avoid:
                    return place, before.id
        places = member.preceding(key, 1, {**avoid, self.me: None})
        return (places[0], member.place.id) if places else None

    def _hop(self, hopping: Hopping, node: NodeId, via: Key) -> None:
        hop = Hop(hopping.key, hopping.payload, hopping.number, via)
        self.call(node, hopping.number, hop, hopping)

    def hop(self, sender: NodeId, message: Hop) -> None:
        if self._member_before(message.key) is None or len(self.hopping) >= self.lookups_max:
            self.dropped += 1  # unanswered: the sender will find another way
            return
        self.send(sender, Hopped(message.number))
        key, payload = message.key, message.payload
        root = self.owner_of(key) is not None
        taken = None if root else self._taken_for_owner(message)
        hint = taken is not None and taken.may_own(key, message.via)
        if taken is None or hint:
            self.emit(Routed(key, payload, sender, root, hint))
            return
        hopping = self._set_off(key, payload)
        if hopping is None:
            return
        before = taken.predecessor
        # If the key lies between our predecessor and us, nobody knows more than we do. Passed on,
        # the payload would go round the ring.
        if before is not None and not up_to(before.id, key, taken.place.id):
            self._hop(hopping, before.node, message.via)
        else:
            self.later(self.answer_within, Again(hopping.number))  # we know more by then

    def _taken_for_owner(self, message: Hop) -> Member | None:
        """Our position that the sender took for the owner's."""
        for member in self.members.values():
            if member.joined and up_to(message.via, message.key, member.place.id):
                self.miss_predecessor(member)
                return member
        return None

    def hopped(self, number: int) -> None:
        """Somebody has taken a payload over, perhaps one that was given up as silent before."""
        hopping = self.hopping.get(number)
        if hopping is None:
            self.dropped += 1
            return
        waiting = self.calls.pop(number, None) is None
        self.cancel(Again(number) if waiting else Silent(number))
        self._arrived(hopping)
        if hopping.came_again:  # perhaps because it was sent back to us
            self.route(Route(hopping.key, hopping.payload))

    def _arrived(self, hopping: Hopping) -> None:
        del self.hopping[hopping.number], self._payloads[hopping.key, hopping.payload]
