"""What leaves before the journal is written promises nothing that a power loss could take back."""

from __future__ import annotations

import pytest

from tarry.proto.tarry_peer_pb2 import (
    Append,
    Appended,
    Heartbeat,
    HeartbeatReply,
    PeerMessage,
    PreVote,
    Vote,
    VoteRequest,
)
from tarry.replication.driver.send_barrier import SendBarrier
from tarry.replication.journal.journal import Journal
from tests.replication.journals import MemoryStorage, fill, sync

FREE = (
    PeerMessage(append=Append(term=2, commit_index=5)),
    PeerMessage(heartbeat=Heartbeat(term=2)),
    PeerMessage(heartbeat_reply=HeartbeatReply(term=2)),
)
BOUND = (
    PeerMessage(append=Append(term=2, commit_index=6)),
    PeerMessage(append=Append(term=3, commit_index=5)),
    PeerMessage(heartbeat=Heartbeat(term=3)),
    PeerMessage(heartbeat_reply=HeartbeatReply(term=3)),
    PeerMessage(vote=Vote(term=2)),
    PeerMessage(vote_request=VoteRequest(term=2)),
    PeerMessage(pre_vote=PreVote(round=1)),
    PeerMessage(appended=Appended(term=2, sequence=1, next_index=5, success=True)),
)


@pytest.mark.parametrize("message", [*FREE, *BOUND], ids=lambda message: str(message).split()[0])
def test_what_rests_on_the_journal_waits_until_it_is_written(message: PeerMessage) -> None:
    journal = Journal(MemoryStorage(), incarnation=1)
    journal.set_term(2, "n1")
    fill(journal, 5, term=2)
    sync(journal)
    fill(journal, 6, term=2)
    journal.set_term(3, None)
    send_barrier = SendBarrier(journal, None)  # type: ignore[arg-type]  # which sends nothing here
    early, late = send_barrier.split([("n2", message)])
    assert (message in [said for _, said in early]) is (message in FREE)
    assert len(early) + len(late) == 1
