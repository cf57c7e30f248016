"""Requests at their limits, of nodes among themselves."""

from __future__ import annotations

from typing import Any, Final

from tarry.node.repair.records import ASKED_RECORDS_MAX
from tarry.proto import tarry_peer_pb2 as peer_pb
from tarry.replication.snapshot.transfer import KEPT_FILES_MAX
from tarry.replication.state_machine.levels import HIGHEST
from tarry.replication.state_machine.queue_checksums import BLOCK_UNITS
from tests.cluster.limit_play import TINY, Play
from tests.cluster.limit_rows import MOST, row

PEER: Final[dict[str, Any]] = {"cluster": "tarry", "node": "n2"}


@row("PeerService/Meet", "PeerService/Recall")
def peers_that_meet(play: Play) -> None:
    play.call("PeerService/Meet", peer_pb.MeetRequest(**PEER).SerializeToString())
    play.call("PeerService/Recall", peer_pb.RecallRequest(**PEER).SerializeToString())


@row("PeerService/FetchSnapshot")
def a_whole_state_given_away(play: Play) -> None:
    kept = [peer_pb.SnapshotFile(name=f"hours/{number}", size_bytes=1) for number in range(KEPT_FILES_MAX)]
    request = peer_pb.FetchSnapshotRequest(**PEER, kept=kept, level=HIGHEST)
    assert play.call("PeerService/FetchSnapshot", request.SerializeToString())


@row("RecordService/FetchRecords", "RecordService/FetchIndex", "RecordService/FetchReady")
def records_indices_and_units_of_a_peer(play: Play) -> None:
    answer = play.schedule([play.name()], [TINY] * MOST, delay_ms=[3_600_000] * MOST)
    hour, numbers = answer.hour[0], list(answer.global_index)[:ASKED_RECORDS_MAX]
    records = peer_pb.FetchRecordsRequest(**PEER, hour=hour, global_index=numbers)
    index = peer_pb.FetchIndexRequest(**PEER, hour=hour, count=2**64 - 1)
    ready = peer_pb.FetchReadyRequest(**PEER, queue=0, count=BLOCK_UNITS)
    assert play.call("RecordService/FetchRecords", records.SerializeToString())
    assert play.call("RecordService/FetchIndex", index.SerializeToString())
    assert play.call("RecordService/FetchReady", ready.SerializeToString())
