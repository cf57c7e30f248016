"""First start of a configured member without a journal: it is new, or its journal has been lost.

A lost journal held votes and entries that were counted. Without it the node would vote once more in the same
term, or for a leader that lacks what it had acknowledged. So it asks the other configured members who has
spoken to them (`spoken_peers`), and begins once nobody can be left who has counted its word:

- a majority of all is as new as it is: the cluster begins; or
- all the others have answered, and none knows it; or
- as many of them as are a majority of all have, and who has not answered has never spoken to any of those: it
  has been elected by none of them, so never, and has counted nothing.

Else it waits, and meanwhile sends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Set
from typing import Final

from tarry.proto.tarry_peer_pb2 import RecallResponse
from tarry.replication.raft.guard.votes import is_majority
from tarry.replication.replica import Replica
from tarry.replication.transport.interface import Transport

ASK_MIN_S: Final = 0.02
ASK_MAX_S: Final = 0.5


class JournalLost(Exception):
    """This node has taken part in the cluster before, and its journal is gone. It must not start."""


def may_begin(node: str, members: Set[str], answers: Mapping[str, RecallResponse]) -> bool:
    """Return whether a member without a journal may begin; `answers`: by member. Raises JournalLost."""
    others = sorted(peer for peer, answer in answers.items() if answer.cluster_incarnation)
    if others:  # a majority of new nodes would begin another cluster beside that one
        raise JournalLost(
            f"{node} has no journal, and {', '.join(others)} went on from a backup, or alone: "
            f"{node} is no founder of that cluster"
        )
    known = {peer: answer for peer, answer in answers.items() if not answer.fresh}
    told = sorted(peer for peer, answer in known.items() if node in answer.spoken)
    # of two, both have all that was ever acknowledged, and neither elects anybody alone
    if told and any(len(known[peer].members) > 2 for peer in told):
        raise JournalLost(
            f"{node} has taken part in this cluster before, {', '.join(told)} say, and has no journal"
        )
    if is_majority(1 + len(answers) - len(known), len(members)):
        return True
    silent = members - known.keys() - {node}
    heard_of = {peer for answer in known.values() for peer in answer.spoken}
    return not silent or (is_majority(len(known), len(members)) and not silent & heard_of)


async def begin(replica: Replica, transport: Transport) -> None:
    """Return once this node may begin, or is to stop. Raises JournalLost."""
    addresses = replica.membership.current()
    others = [(peer, address) for peer, address in sorted(addresses.items()) if peer != replica.node]
    pause_s = ASK_MIN_S
    while not replica.stopping:
        answered = await asyncio.gather(*(transport.recall(peer, address) for peer, address in others))
        answers = {peer: answer for (peer, _), answer in zip(others, answered, strict=True) if answer}
        if may_begin(replica.node, addresses.keys(), answers):
            replica.waits_for = ()
            return
        replica.waits_for = tuple(peer for peer, _ in others if peer not in answers)
        replica.wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await replica.wake.wait()
        pause_s = min(ASK_MAX_S, 2 * pause_s)
