"""A data folder whose log has what no checkpoint of tarry 0.1.0 could hold, and what ended its ledger."""

from __future__ import annotations

from pathlib import Path

import grpc
import numpy as np
import pytest

from tarry.node.delivery.redrive import GROUP
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_message_pb2 import Record, Retried
from tarry.proto.tarry_operator_pb2 import ClusterStatusRequest
from tarry.proto.tarry_producer_pb2 import ScheduleRequest
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import entry_payload
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.snapshot.state_folder import StateFolder
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.producer_answers import ANSWERS_BYTES_MAX, pack
from tests.cluster.disposable import Disposable
from tests.cluster.wire import TIMEOUT_S, refusal, wire
from tests.replication.commands import NOW_MS, release, subscribe
from tests.replication.journals import sync

pytestmark = pytest.mark.beside

LETTERS = "dlq.g.orders"
LAST_SEQUENCE = 2**64 - 1


def scheduled(topic: str, producer: str = "", sequence: int = 0) -> bytes:
    record = Record(body=b"x").SerializeToString()
    due_ms = np.array([NOW_MS], "<i8").tobytes()
    columns = log_pb.ScheduleColumns(
        producer=producer, sequence=sequence, topics=[topic], due_ms=due_ms, records=[record]
    )
    return encode(log_pb.ScheduleCommand(now_ms=NOW_MS, request=columns))


def redriven() -> bytes:
    """What 0.1.0 made of a letter that named itself after a message of the last hour there is."""
    copy = Retried(
        record=Record(body=b"x").SerializeToString(),
        hour=2**32 - 1,
        global_index=2**32 - 2,
        attempt=2**32 - 1,
        topic="orders",
        group="g",
    )
    command = log_pb.RetryCommand(
        group=GROUP,
        queue=2,
        offset=np.array([0], "<u8").tobytes(),
        due_ms=np.array([NOW_MS], "<i8").tobytes(),
        tag_mask=bytes(8),
        records=[copy.SerializeToString()],
        target_topic="orders",
        target_group="g",
        now_ms=NOW_MS,
    )
    return encode(command)


def fill_answers(folder: Path) -> None:
    """Leave room for no other answer in a stopped node's state, as many large requests would."""
    hour, index = np.full(4_096, 9, np.uint32), np.arange(4_096, dtype=np.uint32)
    hour[::2] = 8
    (kept,) = pack([LAST_SEQUENCE], [0], hour, index)
    state = Machine(StateFolder(folder).path, MachineSettings())
    for number in range(ANSWERS_BYTES_MAX // kept.ByteSize()):
        state.producers.remember(f"p{number}", kept)
    state.write(state.capture())
    state.close()


def log_again(folder: Path, entries: list[list[bytes]]) -> int:
    """Append the entries to a journal of a node that is not running; return the index of the last."""
    storage = WriteAheadLog(folder / "journal")
    journal = Journal(storage, incarnation=1)
    for commands in entries:
        payload = entry_payload(log_pb.LogEntry(commands=commands).SerializeToString())
        journal.append(payload, journal.last_index + 1, journal.entry(journal.last_index)[2])
    sync(journal)
    storage.close()
    return journal.last_index


def test_a_folder_that_0_1_0_has_poisoned_opens_serves_and_is_checkpointed(tmp_path: Path) -> None:
    with Disposable(1, tmp_path, {"dispatch": {"checkpoint_ms": 100}}) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        node = cluster.nodes["n1"]
        cluster.stop("n1")
        fill_answers(node.folder)
        large = [scheduled("orders", f"q{number}", LAST_SEQUENCE) for number in range(1_000)]
        letter = [scheduled(LETTERS), release(NOW_MS), subscribe(LETTERS, GROUP)]
        last = log_again(node.folder, [[subscribe("orders", "g")], letter, [redriven()], large])
        for _ in range(2):  # the second start is from the checkpoint
            cluster.start("n1")
            cluster.wait_until_serving()
            with wire(node.address) as stubs:
                status = stubs.operator.ClusterStatus(ClusterStatusRequest(digest=True), timeout=TIMEOUT_S)
                assert status.applied_index >= last
                assert status.state_digest
                request = ScheduleRequest(
                    topic="orders", delay_ms=0, producer="p0", sequence=1, record=Record(body=b"y")
                )
                with pytest.raises(grpc.RpcError) as caught:
                    stubs.producer.Schedule(request, timeout=TIMEOUT_S)
                assert refusal(caught.value).reason == "SEQUENCE_TOO_OLD"
            cluster.stop("n1")
        assert "Traceback" not in node.log.read_text()
