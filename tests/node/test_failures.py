"""An error that nobody awaits ends the node, or the call that it came up in; one of a connection does not."""

from __future__ import annotations

import asyncio
import errno
import gc
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from tarry.node.config import Connections, NodeConfig
from tarry.node.delivery.consumer import Consumer
from tarry.node.edge.auth import Authorizer
from tarry.node.edge.call_admission import Entrance
from tarry.node.edge.grpc_types import ServiceHandler
from tarry.node.failures import Failures
from tarry.node.services.consumer import ConsumerService
from tarry.node.services.producer import STREAM_FIELDS_MAX, ProducerService
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.refusal import Refusal
from tests.node.group_in_process import GROUP, TOPIC, Group
from tests.node.group_play import pass_ms, play
from tests.simulation.edge import Context, StreamEnded

NO_FILES = OSError(errno.EMFILE, "too many open files")


def fail(*_: object) -> Any:
    raise NO_FILES


def test_an_error_in_the_delivery_that_a_timer_begins_ends_the_node() -> None:
    async def steps(group: Group) -> None:
        group.join("a")
        for _ in range(8):
            group.schedule("", 50)
        await group.commit()
        group.release()
        setattr(group.machine.wheel, "read", fail)  # noqa: B010 - a method of one object
        assert not group.failed
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)  # the same error, told once more
        await asyncio.sleep(0.06)  # virtual
        assert group.failed == [NO_FILES]

    play(steps)


def of_the_node() -> Callable[[], object]:
    """A callback in which the node's code fails."""
    consumer = Consumer("c", TOPIC, GROUP, 1_000, 1, frozenset())
    setattr(consumer, "_readable", None)  # noqa: B010 - breaks ``end``
    return lambda: consumer.end(Refusal(Reason.NO_LEADER, ""))


async def told(
    begin: Callable[[asyncio.AbstractEventLoop], object],
) -> tuple[BaseException | None, list[Any]]:
    """Return what ends the node, and what is logged, if this begins on its loop."""
    loop = asyncio.get_running_loop()
    try:
        with capture_logs() as logs:
            watching = asyncio.ensure_future(Failures().watch())
            begin(loop)
            for _ in range(10):
                await asyncio.sleep(0)
            failed = watching.exception() if watching.done() else None
            watching.cancel()
    finally:
        loop.set_exception_handler(None)
    return failed, logs


async def test_an_error_of_the_nodes_own_in_a_callback_a_timer_or_a_forgotten_task_ends_it() -> None:
    async def task() -> None:
        of_the_node()()

    begins: list[Callable[[asyncio.AbstractEventLoop], object]] = [
        lambda loop: loop.call_soon(of_the_node()),
        lambda loop: loop.call_later(0, of_the_node()),
        lambda loop: loop.create_task(task()) and None,
    ]
    for begin in begins:
        failed, logs = await told(begin)
        assert isinstance(failed, AttributeError)
        assert [line["ends_node"] for line in logs] == [True]


HARMLESS = {
    "a connection that is reset": ConnectionResetError(errno.ECONNRESET, "reset"),
    "accept without a file descriptor": OSError(errno.EMFILE, "socket.accept() out of system resource"),
    "gRPC's poller, which another thread has emptied": BlockingIOError(errno.EAGAIN, "unavailable"),
    "TLS closed at a bad moment": RuntimeError("cannot switch state from UNWRAPPED to FLUSHING"),
    "TLS that is none": ssl.SSLError("wrong version number"),
    "a call that broke while it was answered": grpc.aio.UsageError("Channel is closed."),
}


@pytest.mark.parametrize("error", HARMLESS.values(), ids=HARMLESS)
async def test_an_error_of_a_connection_is_logged_and_ends_nothing(error: Exception) -> None:
    def begin(loop: asyncio.AbstractEventLoop) -> None:
        async def task() -> None:
            raise error

        loop.create_task(task())

    failed, logs = await told(begin)
    assert failed is None
    assert [line["ends_node"] for line in logs] == [False]


# -- streams ---------------------------------------------------------------------------------


async def broken(*requests: pb.ConsumeRequest) -> AsyncIterator[bytes]:
    """Requests that fail to arrive after some."""
    for request in requests:
        yield request.SerializeToString()
    raise NO_FILES


def method(service: ServiceHandler, path: str) -> Any:
    class Details:
        method = path
        invocation_metadata = ()

    handler: Any = service.service(Details())  # type: ignore[arg-type]
    return handler.stream_stream


UNARY: Any = type("Calls", (), {"unary": lambda *_, **__: grpc.unary_unary_rpc_method_handler(fail)})()
"""Instead of LeaderCalls, which a stream that brings no request does not need."""


def producer(calls: Any) -> ProducerService:
    config = NodeConfig(node="n1", data=Path("none"), listen="127.0.0.1:1", members={"n1": "127.0.0.1:1"})
    unused = dict.fromkeys(("machine", "driver", "time", "damage", "keys", "leadership"))
    core: Any = SimpleNamespace(config=config, holds=Holds(), **unused)
    return ProducerService(core, Authorizer({}), calls)


async def test_a_schedule_stream_whose_reading_half_fails_ends_with_the_error() -> None:
    unused: Any = None
    stream = method(producer(UNARY).handlers(), "/tarry.v1.ProducerService/ScheduleStream")
    with pytest.raises(OSError, match="too many open files"):
        async with asyncio.timeout(5):
            async for _ in stream(broken(), unused):
                pass


async def test_a_request_of_a_schedule_stream_with_too_many_fields_is_refused() -> None:
    async def requests() -> AsyncIterator[bytes]:
        yield b"\x12\0" * (STREAM_FIELDS_MAX + 1)

    context: Any = Context()
    stream = method(producer(UNARY).handlers(), "/tarry.v1.ProducerService/ScheduleStream")
    with pytest.raises(StreamEnded, match="more than 64 fields"):
        async with asyncio.timeout(5):
            async for _ in stream(requests(), context):
                pass


async def test_when_its_node_stops_a_schedule_stream_ends_after_the_answers_to_what_it_has_read() -> None:
    unused: Any = None
    read, may_answer = asyncio.Event(), asyncio.Event()

    async def answer(_: str, raw: bytes, *__: object) -> bytes:
        await may_answer.wait()
        return raw

    async def requests() -> AsyncIterator[bytes]:
        for number in (1, 2):
            yield log_pb.StreamRequest(request=number, batch=b"").SerializeToString()
        read.set()
        await asyncio.Event().wait()  # as a client that will have more to schedule

    calls: Any = type("Calls", (), {"unary": UNARY.unary, "answer": staticmethod(answer)})()
    service = producer(calls)
    stream = method(service.handlers(), "/tarry.v1.ProducerService/ScheduleStream")

    async def numbers() -> list[int]:
        return [log_pb.StreamResponse.FromString(raw).request async for raw in stream(requests(), unused)]

    answered = asyncio.ensure_future(numbers())
    async with asyncio.timeout(5):
        await read.wait()
        service.end_streams()
        await asyncio.sleep(0)
        may_answer.set()
        assert await answered == [1, 2]


async def test_when_its_node_stops_a_schedule_stream_that_has_read_nothing_yet_ends() -> None:
    unused: Any = None
    service = producer(UNARY)
    stream = method(service.handlers(), "/tarry.v1.ProducerService/ScheduleStream")

    async def requests() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    answered = asyncio.ensure_future(anext(stream(requests(), unused), None))
    await asyncio.sleep(0)  # its reader is made, and takes its first step in the next turn
    service.end_streams()
    async with asyncio.timeout(5):
        assert await answered is None


async def test_an_answer_that_fails_after_its_schedule_stream_is_gone_ends_nothing() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    unused: Any = None
    asked = asyncio.Event()

    async def answer(_: str, raw: bytes, *__: object) -> bytes:
        if raw == b"fails":
            asked.set()
            raise NO_FILES
        return await asyncio.get_running_loop().create_future()  # type: ignore[no-any-return]

    async def requests() -> AsyncIterator[bytes]:
        for number, batch in enumerate((b"waits", b"fails"), 1):
            yield log_pb.StreamRequest(request=number, batch=batch).SerializeToString()

    calls: Any = type("Calls", (), {"unary": UNARY.unary, "answer": staticmethod(answer)})()
    stream = method(producer(calls).handlers(), "/tarry.v1.ProducerService/ScheduleStream")
    answers = stream(requests(), unused)
    reading = asyncio.ensure_future(anext(answers))
    with capture_logs() as logs:
        await asyncio.wait_for(asked.wait(), 5)
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    del answers, reading
    gc.collect()
    assert told == []
    assert [(line["log_level"], line["exc_info"]) for line in logs] == [("error", NO_FILES)]


async def test_an_error_in_a_calls_handler_is_logged_now_and_then_and_a_broken_call_is_not() -> None:
    errors: list[Exception] = [NO_FILES, NO_FILES, grpc.aio.UsageError("Channel is closed.")]

    class Service(grpc.GenericRpcHandler):  # type: ignore[type-arg]
        def service(self, _: grpc.HandlerCallDetails) -> Any:
            return grpc.unary_unary_rpc_method_handler(self.answer)

        async def answer(self, _: bytes, __: object) -> bytes:
            raise errors.pop(0)

    async def request() -> AsyncIterator[bytes]:
        yield b""

    class Details:
        method = "/tarry.v1.TestService/Fail"
        invocation_metadata = ()

    entrance = Entrance([Service()], lambda *_: None, Connections())
    handler: Any = entrance.service(Details())  # type: ignore[arg-type]
    with capture_logs() as logs:
        for _ in range(3):
            with pytest.raises((OSError, grpc.aio.UsageError)):
                await handler.stream_unary(request(), None)
    assert [(line["log_level"], line["exc_info"]) for line in logs] == [("error", NO_FILES)]


def test_a_consumers_stream_whose_reading_half_fails_ends_with_the_error_and_keeps_its_leases() -> None:
    async def steps(group: Group) -> None:
        unused: Any = None
        core: Any = SimpleNamespace(
            config=group.config,
            machine=group.machine,
            journal=SimpleNamespace(cluster_incarnation=0),
            driver=unused,
            leadership=SimpleNamespace(delivery=group.delivery),
            holds=Holds(),
        )
        service = ConsumerService(core, Authorizer({}), UNARY)
        stream = method(service.handlers(), "/tarry.v1.ConsumerService/Consume")
        for _ in range(3):
            group.schedule("", 0)
        await group.commit()
        await pass_ms(group, 10)
        subscribe = pb.Subscribe(topic=TOPIC, group=GROUP, credit=10)
        call = SimpleNamespace(
            peer=lambda: "ipv4:10.0.0.1:5000", auth_context=dict, invocation_metadata=tuple
        )
        with pytest.raises(OSError, match="too many open files"):
            async with asyncio.timeout(5):
                async for _ in stream(broken(pb.ConsumeRequest(subscribe=subscribe)), call):
                    pass
        assert not group.group.consumers

    play(steps)
