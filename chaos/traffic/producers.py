"""Producers of every kind there is, from one seed: single messages, batches, a stream, repeated requests.

Each message is at some time cancelled or looked up as well, some twice. What is sent, and how it is delayed,
follows from the seed; when, from the clock; what is answered is written down.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

from grpc import aio

from tarry.chaos.cluster.cluster import mono_ms, now_ms
from tarry.chaos.history import Answer, Asked, Cancelled, History, Operation, Repeated, Sent
from tarry.chaos.traffic.load import LATER, LIGHT, MASS, Load, later_due_ms
from tarry.chaos.traffic.rate import QUICK, Rates, id_of, request_of, stubs_of
from tarry.chaos.traffic.traffic import GONE, TOKEN, answer_of, answered, outcome
from tarry.client.aio import Client, Producer, Scheduled
from tarry.client.errors import NotFound, TarryError
from tarry.proto import tarry_producer_pb2 as pb
from tarry.proto.tarry_producer_pb2_grpc import ProducerServiceStub

ATTEMPT_S = 2.0
AGAIN_S = 0.2
BATCH = 10
KEYS = 8  # of each topic
LATE_MS = 300  # after which some ask, once it is due
TICK_S = 0.02  # of single messages
CROWD_AFTER_S = 1.5
CROWD_DELAY_MS = 1_500
BATCHES_MAX = 16  # without an answer


@dataclass(slots=True)
class Producers:
    """Sends until told to stop; `finish` waits for the answers.

    `addresses`: where each node is reached, for the kinds that ask any node rather than the leader.
    `ahead_ms`: how far the clocks of all nodes are set ahead.
    """

    client: Client
    addresses: Sequence[str]
    history: History
    topics: Sequence[str]
    rates: Rates
    seed: int
    ahead_ms: int = 0
    load: Load = LIGHT
    tokens: Iterator[int] = field(default_factory=lambda: count(1))
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)
    _calls: set[asyncio.Task[Any]] = field(default_factory=set)
    _kinds: list[asyncio.Task[None]] = field(default_factory=list)

    def _now_ms(self) -> int:
        return now_ms() + self.ahead_ms

    def start(self) -> None:
        kinds = [self._singles, self._batches, self._stream, self._repeats]
        kinds += [self._many_singles] if self.load.singles_per_s else []
        kinds += [self._bulk] if self.load.batches_per_s else []
        self._kinds = [
            asyncio.create_task(kind(random.Random(f"{self.seed} {kind.__name__}"))) for kind in kinds
        ]

    async def finish(self) -> None:
        """Stop, and return once every call has its answer or has given up."""
        self._stopped.set()
        await asyncio.gather(*self._kinds)
        while self._calls:
            await asyncio.gather(*self._calls)

    def cancel(self) -> None:
        """Stop at once, whatever has no answer yet; nothing after `finish`."""
        for task in (*self._kinds, *self._calls):
            task.cancel()

    def _spawn(self, call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(call)
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return task

    async def _pause(self, seconds: float) -> bool:
        """Wait; return whether to go on."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return True
        return False

    def _draft(self, chance: random.Random, topic: str = "") -> Sent:
        """Return a message that has no answer yet, on the topic, or on one that is drawn."""
        delay_ms = 0 if chance.random() < 0.1 else chance.randint(0, self.rates.delay_ms_max)
        at_mono_ms, at_ms = mono_ms(), self._now_ms()  # in this order: else what waits seems to wait less
        drawn = chance.choice(self.topics)
        return Sent(next(self.tokens), topic or drawn, at_ms + delay_ms, at_ms, at_mono_ms)

    def _answered(self, draft: Sent, error: BaseException | None, found: str = "", due_ms: int = 0) -> None:
        self.history.sent.append(answered(draft, error, found, due_ms, self.ahead_ms))

    # Kinds

    async def _singles(self, chance: random.Random) -> None:
        async with self.client.producer() as producer:
            while await self._pause(chance.expovariate(self.rates.singles)):
                draft = self._draft(chance)
                if chance.random() < self.rates.keyed_share:
                    draft = replace(draft, key=f"key {chance.randrange(KEYS)}")
                self._spawn(self._single(producer, draft, random.Random(chance.random())))
            await self._drained()

    async def _single(self, producer: Producer, draft: Sent, chance: random.Random) -> None:
        delay_ms = draft.due_ms - draft.sent_ms
        absolute = chance.random() < 0.5
        try:
            scheduled = await producer.schedule(
                draft.topic,
                TOKEN.pack(draft.token),
                due_ms=draft.due_ms if absolute else None,
                delay_ms=None if absolute else delay_ms,
                ordering_key=draft.key,
            )
        except TarryError as error:
            self._answered(draft, error)
            return
        self._answered(draft, None, scheduled.id, scheduled.due_ms)
        if chance.random() < self.rates.ask_share:
            await self._ask(producer, draft.token, scheduled.id, delay_ms, chance)

    async def _ask(
        self, producer: Producer, token: int, found: str, delay_ms: int, chance: random.Random
    ) -> None:
        """Cancel or look up, a few times: before it is due, about then, and once it may be delivered."""
        for _ in range(chance.randint(1, 3)):
            await asyncio.sleep(chance.random() * (delay_ms + LATE_MS) / 1_500)
            asked = Asked.CANCEL if chance.random() < 0.4 else Asked.GET
            at_ms = mono_ms()
            try:
                outcome = (
                    await producer.cancel(found)
                    if asked is Asked.CANCEL
                    else (await producer.get(found)).state
                ).value
            except NotFound:
                outcome = "not_found"
            except TarryError as error:
                if answer_of(error) is Answer.UNKNOWN:
                    self.history.operations.append(Operation(token, asked, "", at_ms, None))
                    if asked is Asked.CANCEL:
                        self.history.cancelled.append(Cancelled(token, self._now_ms(), certain=False))
                continue
            self.history.operations.append(Operation(token, asked, outcome, at_ms, mono_ms()))
            if asked is Asked.CANCEL and outcome in GONE:
                self.history.cancelled.append(Cancelled(token, self._now_ms()))

    async def _batches(self, chance: random.Random) -> None:
        async with self.client.producer() as producer:
            while await self._pause(chance.expovariate(self.rates.batched / BATCH)):
                topic = chance.choice(self.topics)
                drafts = [self._draft(chance, topic) for _ in range(BATCH)]
                self._spawn(self._batch(producer, drafts))
            await self._drained()

    async def _batch(self, producer: Producer, drafts: Sequence[Sent], body_bytes: int = 0) -> list[str]:
        """Schedule messages of one topic; return their ids, none where there is no answer."""
        bodies = [TOKEN.pack(draft.token).ljust(body_bytes, b"\0") for draft in drafts]
        due_ms = [draft.due_ms for draft in drafts]
        try:
            answer = await producer.schedule_batch(drafts[0].topic, bodies, due_ms=due_ms)
        except TarryError as error:
            for draft in drafts:
                self._answered(draft, error)
            return []
        for draft, found, due in zip(drafts, answer.ids, answer.due_ms.tolist(), strict=True):
            self._answered(draft, None, found, due)
        return list(answer.ids)

    async def schedule_many(
        self, topic: str, count: int, delay_ms: int, *, recorded: bool, body_bytes: int = 100
    ) -> None:
        """Schedule many as batches, all due at one moment; `recorded`: they belong to the history."""
        async with self.client.producer() as producer:
            drafts = self._drafts(topic, [self._now_ms() + delay_ms] * count)
            bodies = [TOKEN.pack(draft.token).ljust(body_bytes, b"\0") for draft in drafts]
            answer = await producer.schedule_batch(topic, bodies, due_ms=drafts[0].due_ms)
            if recorded:
                for draft, found in zip(drafts, answer.ids, strict=True):
                    self._answered(draft, None, found, draft.due_ms)

    async def schedule_at(self, topic: str, due_ms: Sequence[int]) -> None:
        """Schedule a message for each due time, as large batches; they belong to the history."""
        async with self.client.producer() as producer:
            await self._large_batch(producer, topic, due_ms, 100, random.Random(self.seed))

    def _drafts(self, topic: str, due_ms: Sequence[int]) -> list[Sent]:
        """Return messages for one topic that have no answer yet."""
        at_mono_ms, at_ms = mono_ms(), self._now_ms()
        return [Sent(next(self.tokens), topic, each_ms, at_ms, at_mono_ms) for each_ms in due_ms]

    # The load

    async def _many_singles(self, chance: random.Random) -> None:
        """Schedule single messages, so many a second whatever becomes of those before."""
        begun, sent = asyncio.get_running_loop().time(), 0
        async with self.client.producer() as producer:
            while await self._pause(TICK_S):
                elapsed_s = asyncio.get_running_loop().time() - begun
                due = min(int(elapsed_s * self.load.singles_per_s) - sent, self.load.singles_per_s)
                for _ in range(due):
                    draft = self._draft(chance, MASS)
                    body = TOKEN.pack(draft.token).ljust(self.load.body_bytes, b"\0")
                    try:
                        answer = producer.schedule(MASS, body, due_ms=draft.due_ms)
                    except TarryError as error:  # too many wait for their answer: it was not sent
                        self._answered(draft, error)
                        continue
                    answer.add_done_callback(partial(self._single_answered, draft))
                sent += due
            await producer.flush()

    def _single_answered(self, draft: Sent, answer: asyncio.Future[Scheduled]) -> None:
        self._answered(draft, *outcome(answer))

    async def _bulk(self, chance: random.Random) -> None:
        """Schedule large batches, due soon or in years, cancel some; once a crowd at one instant."""
        begun, crowded = asyncio.get_running_loop().time(), False
        room = asyncio.Semaphore(BATCHES_MAX)  # a client that has no answer does not pile up more
        async with self.client.producer() as producer:
            while await self._pause(chance.expovariate(self.load.batches_per_s)):
                await room.acquire()
                now_ms, count = self._now_ms(), self.load.batch_messages
                if not crowded and asyncio.get_running_loop().time() - begun > CROWD_AFTER_S:
                    crowded = True
                    crowd = [now_ms + CROWD_DELAY_MS] * self.load.crowd_messages
                    batch = self._large_batch(producer, MASS, crowd, 100, chance)
                elif chance.random() < self.load.later_share:
                    due_ms = later_due_ms(now_ms, count, chance)
                    batch = self._large_batch(producer, LATER, due_ms, self.load.body_bytes, chance)
                else:
                    due_ms = [now_ms + chance.randint(0, self.rates.delay_ms_max) for _ in range(count)]
                    batch = self._large_batch(producer, MASS, due_ms, self.load.body_bytes, chance)
                self._spawn(batch).add_done_callback(lambda _: room.release())
            await self._drained()

    async def _large_batch(
        self, producer: Producer, topic: str, due_ms: Sequence[int], body_bytes: int, chance: random.Random
    ) -> None:
        drafts = self._drafts(topic, due_ms)
        ids = await self._batch(producer, drafts, body_bytes)
        if ids and topic == LATER and chance.random() < self.load.cancel_share:
            await self._cancel_some(producer, drafts, ids, chance)

    async def _cancel_some(
        self, producer: Producer, drafts: Sequence[Sent], ids: Sequence[str], chance: random.Random
    ) -> None:
        chosen = chance.sample(range(len(ids)), len(ids) // 3)
        try:
            outcomes = await producer.cancel_many([ids[place] for place in chosen])
        except TarryError as error:
            if answer_of(error) is Answer.UNKNOWN:
                self.history.cancelled += [
                    Cancelled(drafts[place].token, self._now_ms(), certain=False) for place in chosen
                ]
            return
        self.history.cancelled += [
            Cancelled(drafts[place].token, self._now_ms())
            for place, outcome in zip(chosen, outcomes, strict=True)
            if outcome in GONE
        ]

    async def _drained(self) -> None:
        """Wait for the calls of a producer before it is closed."""
        while self._calls:
            await asyncio.gather(*self._calls)

    # Kinds that speak the protocol themselves, to whatever node

    async def _repeats(self, chance: random.Random) -> None:
        """Send requests until they are answered, and some once more, to any node."""
        producer = f"repeats-{chance.getrandbits(64):x}"
        sequence = count(1)
        async with stubs_of(self.addresses, ProducerServiceStub) as stubs:
            while await self._pause(chance.expovariate(self.rates.repeated)):
                draft = self._draft(chance)
                if chance.random() < self.rates.by_key_share:  # as of a producer that starts anew each time
                    request = request_of("", 0, draft, f"{producer} {draft.token}")
                else:
                    request = request_of(producer, next(sequence), draft)
                first = await self._until_answered(stubs, request, chance)
                self._record(draft, first)
                if first is not None and chance.random() < 0.5:
                    again = await self._until_answered(stubs, request, chance)
                    if again is not None:
                        self.history.repeated.append(Repeated(draft.token, id_of(first), id_of(again)))

    async def _until_answered(
        self, stubs: Sequence[ProducerServiceStub], request: pb.ScheduleBatchRequest, chance: random.Random
    ) -> pb.ScheduleBatchResponse | None:
        for _ in range(20):
            try:
                answer: pb.ScheduleBatchResponse = await chance.choice(stubs).ScheduleBatch(
                    request, timeout=ATTEMPT_S
                )
            except aio.AioRpcError:
                await asyncio.sleep(AGAIN_S)
            else:
                return answer
        return None

    async def _stream(self, chance: random.Random) -> None:
        """Keep one stream to any node that takes it; what it leaves unanswered goes on the next."""
        producer = f"stream-{chance.getrandbits(64):x}"
        waiting: dict[int, tuple[Sent, pb.ScheduleBatchRequest]] = {}
        sequence = count(1)
        while not self._stopped.is_set():
            async with aio.insecure_channel(chance.choice(self.addresses), QUICK) as channel:
                stream = ProducerServiceStub(channel).ScheduleStream(timeout=30)
                reading = asyncio.create_task(self._read(stream, waiting))
                try:
                    for number, (_, request) in sorted(waiting.items()):
                        await stream.write(pb.ScheduleStreamRequest(request=number, batch=request))
                    while not reading.done() and await self._pause(chance.expovariate(self.rates.streamed)):
                        if len(waiting) > 16:
                            continue
                        number, draft = next(sequence), self._draft(chance)
                        waiting[number] = draft, request_of(producer, number, draft)
                        await stream.write(pb.ScheduleStreamRequest(request=number, batch=waiting[number][1]))
                except (aio.AioRpcError, asyncio.InvalidStateError):
                    pass  # the node is away, or does not lead
                await asyncio.sleep(AGAIN_S)
                stream.cancel()
                await reading
        for draft, _ in waiting.values():
            self._record(draft, None)

    async def _read(
        self, stream: aio.StreamStreamCall[Any, Any], waiting: dict[int, tuple[Sent, pb.ScheduleBatchRequest]]
    ) -> None:
        try:
            async for response in stream:
                if response.WhichOneof("outcome") != "accepted":
                    return
                draft, _ = waiting.pop(response.request)
                self._record(draft, response.accepted)
        except (aio.AioRpcError, asyncio.CancelledError):
            return

    def _record(self, draft: Sent, answer: pb.ScheduleBatchResponse | None) -> None:
        if answer is None:
            self._answered(draft, TimeoutError("no answer in time"))
        else:
            self._answered(draft, None, id_of(answer), answer.due_ms[0])
