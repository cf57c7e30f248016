"""What must hold at every step, whatever happens. Names are those of Raft's paper where it has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tarry.proto.tarry_peer_pb2 import PeerMessage
from tarry.replication.status import Role

if TYPE_CHECKING:
    from tests.simulation.world import SimNode


class Violation(AssertionError):
    """An invariant does not hold; the message says which and where."""


class Checker:
    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}
        self.chains: dict[tuple[int, int], int] = {}
        self.applied: dict[int, tuple[int, list[bytes], bytes]] = {}  # index: term, commands, digest
        self.committed: dict[int, int] = {}  # term in which a replica knew of it: highest index
        self.place: dict[bytes, int] = {}
        self.votes: dict[tuple[str, int], str] = {}
        self.promised: dict[str, tuple[int, int]] = {}  # node: term, highest index acknowledged in it
        self.acknowledged: dict[bytes, int] = {}
        self.most_acknowledged = 0
        self.refused: set[bytes] = set()
        self.last: dict[str, tuple[int, int, int]] = {}  # node: term led, last index, commit index
        self.sometimes: Counter[str] = Counter()

    def up_to(self, last: int) -> Checker:
        """Return one that has seen what this one has, of entries up to that one."""
        checker = Checker()
        checker.sometimes = self.sometimes
        checker.applied = {index: entry for index, entry in self.applied.items() if index <= last}
        checker.place = {command: index for command, index in self.place.items() if index <= last}
        acknowledged = self.acknowledged.items()
        checker.acknowledged = {command: index for command, index in acknowledged if index <= last}
        return checker

    def after_turn(self, node: SimNode, nodes: Sequence[SimNode]) -> None:
        core, journal = node.driver._replica, node.journal
        state = core.consensus.state
        led = state.term if state.role is Role.LEADER else 0
        if led:
            first = self.leaders.setdefault(led, node.name)
            _demand(first == node.name, f"C1: {first} and {node.name} lead term {led}")
        if journal.last_index > journal.first_index:
            key, chain = (journal.last_index, journal.last_term), journal.chain_at(journal.last_index)
            known = self.chains.setdefault(key, chain)
            _demand(known == chain, f"C3: {node.name} has another log up to {key}")
        led_before, last_before, commit_before = self.last.get(node.name, (0, 0, 0))
        if led and led == led_before:
            _demand(journal.last_index >= last_before, f"C2: leader {node.name} shortens its log")
        if led and led != led_before:
            self._check_completeness(node, led)
        _demand(state.commit_index >= commit_before, f"C8: {node.name} takes back commits")
        _demand(core.applied <= state.commit_index, f"C8: {node.name} applies what is not committed")
        seen = self.committed.get(state.term, 0)
        self.committed[state.term] = max(seen, state.commit_index)
        self.last[node.name] = (led, journal.last_index, state.commit_index)
        self.check_leases(nodes)

    def check_leases(self, nodes: Sequence[SimNode]) -> None:
        serving = [node.name for node in nodes if node.alive and node.driver.may_serve()]
        _demand(len(serving) <= 1, f"C12: {serving} serve at once")
        for node in nodes:
            if node.name in serving:
                has, most = node.driver._replica.applied, self.most_acknowledged
                _demand(has >= most, f"C15: {node.name} serves with {has}; {most} is acknowledged")

    def on_apply(self, node: str, index: int, term: int, commands: list[bytes], digest: bytes) -> None:
        entry = (term, commands, digest)
        first = self.applied.setdefault(index, entry)
        if first != entry:
            raise Violation(
                f"C5: {node} applies another entry at {index}: {_brief(entry)} not {_brief(first)}"
            )
        if first is entry:
            for command in commands:
                where = self.place.setdefault(command, index)
                _demand(where == index, f"{command[:20]!r} is applied at {where} and {index}")
                _demand(command not in self.refused, f"{command[:20]!r} is applied though refused")

    def on_said(self, sender: str, receiver: str, sealed: bytes) -> None:
        message = PeerMessage.FromString(sealed)
        kind = message.WhichOneof("body")
        if kind == "vote":
            self._check_vote(sender, message.vote.term, receiver)
        elif kind == "vote_request":
            self._check_vote(sender, message.vote_request.term, sender)
        elif kind == "appended" and message.appended.success:
            term, index = message.appended.term, message.appended.next_index - 1
            held_term, held = self.promised.get(sender, (0, 0))
            self.promised[sender] = (term, max(index, held) if term == held_term else index)
        if kind is not None:
            self.sometimes[kind] += 1

    def on_start(self, node: SimNode) -> None:
        term, index = self.promised.get(node.name, (0, 0))
        journal = node.journal
        _demand(journal.term >= term, f"C6: {node.name} comes back in term {journal.term}, not {term}")
        if journal.term == term:
            _demand(
                journal.last_index >= index, f"C7: {node.name} acknowledged {index}, has {journal.last_index}"
            )
        self.last.pop(node.name, None)

    def on_acknowledged(self, command: bytes, index: int, leader: SimNode) -> None:
        self.acknowledged[command] = index
        self.most_acknowledged = max(index, self.most_acknowledged)
        _demand(self.place.get(command) == index, f"{command[:20]!r} is acknowledged but not applied")
        term = self.applied[index][0]
        holding = {node.name for node in leader.world.nodes if node.has_durable(index, term)}
        now = leader.driver.status().members.keys()
        then = leader.driver._replica.membership.at(index).addresses.keys()  # who may have committed it
        enough = any(2 * len(holding & members) > len(members) for members in (now, then))
        _demand(enough, f"C9: {index} is acknowledged by the disks of {holding} of {now}")

    def on_refused(self, command: bytes) -> None:
        self.refused.add(command)
        _demand(command not in self.place, f"{command[:20]!r} is refused though applied")

    def on_read(self, applied: int, floor: int) -> None:
        _demand(applied >= floor, f"a read sees {applied}, though {floor} was acknowledged before it")

    def at_the_end(self, nodes: Sequence[SimNode]) -> None:
        digests = {node.machine.digest for node in nodes}
        _demand(len(digests) == 1, "C14: states differ")
        lost = self.lost(nodes)
        _demand(not lost, f"{len(lost)} acknowledged commands are lost")

    def lost(self, nodes: Sequence[SimNode]) -> list[bytes]:
        """Acknowledged commands that are on no disk."""
        return [
            command
            for command, index in self.acknowledged.items()
            if not any(node.has_durable(index, self.applied[index][0]) for node in nodes)
        ]

    def _check_vote(self, voter: str, term: int, candidate: str) -> None:
        known = self.votes.setdefault((voter, term), candidate)
        _demand(known == candidate, f"C6: {voter} votes for {known} and {candidate} in term {term}")

    def _check_completeness(self, node: SimNode, led: int) -> None:
        """Of terms that are not over: a candidate whose votes were late may yet win an earlier one."""
        committed = max((index for term, index in self.committed.items() if term <= led), default=0)
        journal = node.journal
        _demand(journal.last_index >= committed, f"C4: {node.name} leads without {committed}")
        if committed > journal.first_index and committed in self.applied:
            term = journal.term_at(committed)
            _demand(term == self.applied[committed][0], f"C4: {node.name} leads with another {committed}")


def _brief(entry: tuple[int, list[bytes], bytes]) -> tuple[int, list[bytes]]:
    return entry[0], [command[:20] for command in entry[1]]


def _demand(holds: bool, text: str) -> None:
    if not holds:
        raise Violation(text)
