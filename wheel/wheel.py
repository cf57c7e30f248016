"""The wheel: messages in, by due time; messages out, in the order of their due times; nothing else.

    append ──► hour wheel ──► hour partition: delay log, delay index, second wheel
                   │   │              ▲ │ a second at a time, when it is within 10 s of the cut
                   │   └► far log ────┘ │ an hour at a time
    take ◄── near queue ◄───────────────┘

                 released │ pending
    ──────────────────────┼────────────────────► (due_ms, global index)
                         cut

It knows files, and no clock: everything it answers follows from the calls it got. Two wheels that got the
same calls are equal, whatever they hold in memory, and whether or not one of them was recovered in between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tarry.wheel.cached_reads import FilePlaces, Pread
from tarry.wheel.columns import distinct
from tarry.wheel.due_scan import Chosen, DueScan
from tarry.wheel.durability import Durability
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.hour_wheel import HourWheel
from tarry.wheel.id_gaps import IdGaps
from tarry.wheel.messages import Messages, Page
from tarry.wheel.moved_messages import MovedMessages
from tarry.wheel.near_queue import ENTRY
from tarry.wheel.pending_view import PendingView, capture
from tarry.wheel.placement import append
from tarry.wheel.release import Release
from tarry.wheel.state import (
    HOUR_MS,
    HOUR_SECONDS,
    SECOND_MS,
    Appended,
    Cancellation,
    Cut,
    Flags,
    Masks,
    MessageState,
    Numbers,
    Rows,
    Taken,
    Times,
    WheelDamaged,
    WheelSettings,
    WheelState,
)
from tarry.wheel.thinning import settle
from tarry.wheel.upkeep import Upkeep


class Wheel:
    """The pending messages of one replica, in `folder`, which holds one folder per hour.

    An OSError or WheelDamaged out of a call leaves the files as `recover` can use them, and this object
    unusable.
    """

    def __init__(self, folder: Path, settings: WheelSettings, state: WheelState | None = None) -> None:
        """Make an empty wheel in an empty or missing folder; with a `state`, open the one it was captured of.

        Raises WheelDamaged where the folder holds hours and there is no state; else as `recover` does.
        """
        hours = HourWheel(folder, settings, state)
        state = state or WheelState()
        self._folder = folder
        self._settings = settings
        self._hours = hours
        self._floor_hour = state.floor_hour
        self._release = Release(hours, settings, state.cut, state.local_index)
        self._messages = Messages(hours, settings.read_gap_bytes)
        self.upkeep = Upkeep(folder, hours, settings)
        self._gaps = IdGaps(state.id_gaps)
        self._moved = MovedMessages(self._are_dropped, hours.counts.message_sum, state.moved, self._gaps)
        self._durability = Durability(folder, state)
        self.released = 0
        """Messages that this object has released."""

    @classmethod
    def recover(cls, folder: Path, settings: WheelSettings, state: WheelState) -> Wheel:
        """Open the wheel as it was when `state` was captured; `WheelState()` is the empty one.

        Raises WheelDamaged where a file is missing or too short, OSError where it cannot be read or cut.
        Costs a look at two files per hour; slots are checked, and the index read, when an hour is first
        used.
        """
        return cls(folder, settings, state)

    def prepare(self) -> None:
        """Do what would hold up the first calls after `recover`, for as long as it takes; changes no answer.

        Raises OSError and WheelDamaged where what is due next cannot be loaded; other damage is left to the
        first call that needs the hour.
        """
        self._hours.prepare()
        if self._hours.is_large(self.cut.due_ms // HOUR_MS):
            while self._release.load_ahead(self.cut.due_ms):
                pass
        with suppress(WheelDamaged):  # an OSError may have come in the middle of a move out of the far log
            while self._release.read_far_crowds():
                pass

    # Changes

    def append(self, due_ms: Times, topic: Numbers, tag_mask: Masks, records: Sequence[bytes]) -> Appended:
        """Take in n messages; columns of shape (n,). Linear in n, whatever is pending, over whatever hours.

        Raises OSError.

        One due in an hour that is not kept any more is stored, overdue, at the start of the first that is.
        """
        due = np.maximum(due_ms, self._floor_hour * HOUR_MS)
        hour = (due // HOUR_MS).astype(np.uint32)
        overdue = self._release.overdue(due)
        global_index = append(
            self._hours,
            self.cut.due_ms // HOUR_MS + 1,
            hour,
            records,
            due_in_hour_ms=(due % HOUR_MS).astype(np.uint32),
            overdue=overdue,
            topic=topic,
            tag_mask=tag_mask,
        )
        entries = np.empty(len(records), ENTRY)
        entries["due_ms"] = due
        entries["global_index"] = global_index
        entries["topic"] = topic
        entries["tag_mask"] = tag_mask
        if bool(overdue.any()):
            entries = entries[~overdue]
        self._hours.topics.add(entries["topic"])
        self._release.arrive(entries)
        return Appended(hour, global_index, overdue)

    def take(self, until_ms: int, count: int) -> Taken:
        """Release at most `count` messages due by `until_ms`, in (due_ms, hour, global index) order.

        The cut follows: where nothing pending is left by `until_ms` it is (until_ms, NONE), otherwise the
        last message taken. Behind the cut there is nothing to take, and nothing changes. Costs what it
        returns, plus a second's chain when one is loaded.
        """
        taken = self._release.take(until_ms, count)
        self.released += len(taken)
        return taken

    def load_ahead(self, now_ms: int) -> None:
        """Bring what is soon due into memory, a bounded amount a call; changes no answer of any call.

        `take` does the same, from its cut. Where nothing is taken for long, call this now and then.
        """
        if not self._release.load_ahead(now_ms):
            self._release.read_far_crowds()

    def overtake(self, hour: Numbers, global_index: Numbers) -> Taken:
        """Release messages ahead of the cut, places of shape (n,): those that are pending, hours as they are
        named, each by due time.

        The cut stays, and passes them over when it gets there.
        """
        taken = self._messages.overtake(self._release.cut, hour, global_index)
        self.released += len(taken)
        return taken

    def overtaking(self, until_ms: int, count: int, quota: int) -> tuple[Numbers, Numbers]:
        """Choose messages due by `until_ms` that should overtake the next `count`: at most `quota` places.

        For each topic its first ones; none of the topic that has most of the next. What has been seen so far
        decides, so that wheels which got the same calls may answer differently: it is a leader's to ask.
        """
        return self._release.overtaking(until_ms, count, quota)

    def front(self, until_ms: int, count: int) -> Numbers:
        """Return the topics of the next `count` messages due by `until_ms`, those in memory, in order.

        What is in memory rests on when this was asked: it is a leader's to ask.
        """
        return self._release.front(until_ms, count)

    def until_of_hours(self, until_ms: int, hours_max: int) -> int:
        """Return the latest time up to `until_ms` by which at most so many hours have anything pending."""
        return self._release.until_of_hours(until_ms, hours_max)

    def cancel(self, hour: Numbers, global_index: Numbers) -> Cancellation:
        """Cancel pending messages, places of shape (n,); a repeated cancel's outcome is ALREADY_CANCELLED."""
        return self._messages.cancel(self._release.cut, hour, global_index)

    def move(
        self,
        hour: Numbers,
        global_index: Numbers,
        kept: Flags,
        due_ms: Times,
        topic: Numbers,
        tag_mask: Masks,
        records: Sequence[bytes],
    ) -> Appended:
        """Give pending messages, ids of shape (n,), each once, other due times and records. Raises OSError.

        The others of the columns are as of `append`. Where `kept`, the message keeps its id; else it has that
        of its new place.
        """
        before = self.places_of(hour, global_index)
        self._messages.cancel(self._release.cut, *before)
        done = self.append(due_ms, topic, tag_mask, records)
        columns = ((hour, global_index), before, (done.hour, done.global_index))
        if bool(kept.any()):
            self._moved.move(*((at[kept], index[kept]) for at, index in columns))
        return done

    def withdraw(self, hour: Numbers, global_index: Numbers) -> None:
        """Note that released messages, places of shape (n,), are cancelled. Reads and writes no file."""
        self._messages.withdraw(hour, global_index)

    def is_withdrawn(self, hour: int, global_index: int) -> bool:
        """Return whether a message was cancelled after its release. Raises OSError and WheelDamaged."""
        return self._messages.is_withdrawn(hour, global_index)

    def begin_incarnation(self, id_gap: int) -> None:
        """Have the ids of all later messages lie so much further: behind those that may be given and lost."""
        hours = self.hours()
        self._gaps.begin(id_gap, hours, [self.units_in_hour(hour) for hour in hours], self._floor_hour)

    def drop_hour(self, hour: int) -> None:
        """Forget an hour. Raises ValueError where it does not lie wholly behind the cut."""
        if (hour + 1) * HOUR_MS > self._release.cut.due_ms:
            raise ValueError(f"hour {hour} is not behind the cut {self._release.cut}")
        self._floor_hour = max(self._floor_hour, hour + 1)
        self._hours.drop(hour)
        self._moved.drop(hour)

    def sweep_moved(self) -> None:
        """Free some memory of moved messages whose hours are dropped. Changes no answer."""
        self._moved.sweep()

    def _are_dropped(self, hour: Numbers) -> Flags:
        """Flag the hours, shape (n,), that had messages and have been dropped."""
        dropped: Flags = hour < self._floor_hour
        some = hour[dropped]
        there = [at for at in distinct(some).tolist() if self._hours.units(at)]
        dropped[dropped] = ~np.isin(some, np.array(there, np.uint32))
        return dropped

    # What there is

    def places_of(self, hour: Numbers, global_index: Numbers) -> tuple[Numbers, Numbers]:
        """Return where the messages of ids, shape (n,), rest: other hours and indices where they were moved,
        and other indices behind an id gap.

        All other calls, but `move` and `first_places_of`, take places. Of an id that was given to nobody it
        is a place of nothing.
        """
        return self._moved.places(hour, global_index)

    def ids_of(self, hour: Numbers, global_index: Numbers) -> tuple[Numbers, Numbers]:
        """Return the ids of the messages that rest at places, shape (n,), or did until their release."""
        return self._moved.ids(hour, global_index)

    def first_ids_of(self, hour: Numbers, global_index: Numbers) -> tuple[Numbers, Numbers]:
        """Return the ids that follow from places, shape (n,), as of messages that were never moved."""
        return hour, self._gaps.indices(hour, global_index)

    def first_places_of(self, hour: Numbers, global_index: Numbers) -> tuple[Numbers, Numbers]:
        """Return the places from which ids, shape (n,), follow: where the messages rested first."""
        return self._gaps.places(hour, global_index)

    @property
    def ids_differ(self) -> bool:
        """True where messages may have ids that are not their places."""
        return bool(self._gaps) or self.moved > 0

    @property
    def moved(self) -> int:
        """Number of ids that are remembered: of moved messages, and of places that they have left again."""
        return len(self._moved)

    @property
    def cut(self) -> Cut:
        """(due_ms, global_index): all at or below is released. It never moves back."""
        return self._release.cut

    @property
    def tick(self) -> int:
        """The second of the cut."""
        return self._release.cut.due_ms // SECOND_MS

    @property
    def local_index(self) -> int:
        """The number of messages of the tick's second that have been taken."""
        return self._release.local_index

    @property
    def floor_hour(self) -> int:
        """The first hour that has not been dropped; nothing is stored before."""
        return self._floor_hour

    @property
    def pending(self) -> int:
        """Messages appended and neither released nor cancelled."""
        return self._hours.counts.total

    @property
    def near_messages(self) -> int:
        """Messages of the next seconds that are in memory."""
        return self._release.near_messages

    @property
    def open_hours(self) -> int:
        """Hours whose files are open."""
        return self._hours.open_hours

    def pending_in_hour(self, hour: int) -> int:
        """Return the number of pending messages of an hour."""
        return self._hours.counts.of(hour)

    def pending_of(self, topic: int) -> int:
        """Return the number of pending messages of a topic."""
        return self._hours.topics.of(topic)

    def pending_of_all(self, topics: Numbers) -> int:
        """Return the number of pending messages of topics, shape (n,), together."""
        return self._hours.topics.of_all(topics)

    def due_scan(self, chosen: Chosen, after: Cut, end_ms: int) -> DueScan:
        """Return a scan for what is pending, chosen, behind a position, and due before `end_ms`.

        In the order of due time and global index, some ms of work a step, whatever there is.
        """
        return DueScan(self._hours, lambda: self._release.cut, chosen, after, end_ms)

    def pending_page(self, hour: int, topics: Numbers, start: int, count: int) -> Page:
        """Return pending messages of topics, shape (k,), of an hour, from a global index on, in its order.

        Some units of the hour, mostly `count`, are looked at; its last ones, if they are in the far log,
        together. Raises OSError and WheelDamaged.
        """
        return self._messages.page_of(self._release.cut, hour, topics, start, count)

    def next_pending_hour(self, hour: int) -> int | None:
        """Return the first hour, from one on, that has anything pending."""
        return next(self._hours.counts.from_hour(hour), None)

    def units_between(self, begin: int, end: int) -> int:
        """Return the number of units of the hours from `begin` on, before `end`, whatever became of them.

        Of hours behind the columns of `HourCounts` that have nothing pending there are none.
        """
        return self._hours.units_between(begin, end)

    def topics_with_pending(self) -> Numbers:
        """Return the topics that have pending messages, ascending."""
        return self._hours.topics.with_some()

    def topics_pending(self) -> int:
        """Return the number of topics with pending messages."""
        return self._hours.topics.some

    def pending_ahead(self, second: int, seconds: int) -> Numbers:
        """Return an upper bound of the pending messages of each second from `second` on, u4[seconds].

        Exact, but for seconds behind the tick and for messages that came overdue.
        """
        pending = self._hours.live_ahead(second, seconds)
        if second <= self.tick < second + seconds:
            pending[self.tick - second] -= min(self.local_index, int(pending[self.tick - second]))
        return pending

    def next_due_ms(self) -> int | None:
        """Return a time before which nothing is due; None where nothing is pending.

        It is the earliest due time, but for cancelled messages and for seconds of more than 4,096 messages.
        """
        return self._release.next_due_ms()

    def pending_before(self, due_ms: int) -> int:
        """Return the number of pending messages due before a time, from memory alone: no file is read.

        Exact where the hour of `due_ms` is open, with nothing of it in the far log, and its second is in the
        near queue, or begins at `due_ms`: for the present that is so while there is room for what is due.
        Else those of that second, or of that hour, are not counted; of a crowd in that second, those that are
        gone are. Costs a sum over the hours from the cut on, one over the hour's seconds, and where some of
        the second are gone a look at its entries.
        """
        return self._release.pending_before(due_ms)

    def pending_seconds(self, second: int, seconds: int) -> Numbers | None:
        """Return the number of pending messages of each second from `second` on, u4[seconds], from memory.

        Exact; in the cut's second as `pending_before` is. None where an hour of them with any is not open,
        or has some in the far log: the hour of the cut and the next one with any are mostly open.
        """
        return self._release.pending_seconds(second, seconds)

    def first_due_ms(self) -> int | None:
        """Return a time before which nothing pending is due, as `next_due_ms` does, from memory alone.

        It is the earliest due time of all where that is in the near queue, in the first 64 seconds that it
        has, among the first 256 messages of each; else the beginning of the first hour with any, or the cut.
        None where nothing is pending.
        """
        return self._release.first_due_ms()

    def overdue(self, now_ms: int) -> tuple[int, int]:
        """Return how many pending messages are due by a time, and for how many ms the first has been.

        From memory alone, and as exact as `pending_before` and `first_due_ms`; 0 and 0 where none is.
        """
        count = self.pending_before(now_ms + 1)
        first_ms = self.first_due_ms() if count else None
        return count, 0 if first_ms is None else max(0, now_ms - first_ms)

    def due_topics(self, until_ms: int) -> tuple[Numbers, NDArray[np.int64], Times]:
        """Return what is pending and due by a time, by topic, from memory alone.

        Columns of shape (k,): topics, ascending, how many of each, and the first due time of each. Only of
        what is in the near queue, at most 65,536 of that; of the far log's, cancelled ones too.
        """
        return self._release.due_topics(until_ms)

    def costs_ns(self, hour: Numbers, global_index: Numbers) -> Numbers:
        """Estimate the CPU time of a call that names messages, for each: places of shape (n,) by hour."""
        return self._messages.costs_ns(hour, global_index)

    def known(self, hour: Numbers, global_index: Numbers) -> Flags:
        """Flag the messages, places of shape (n,) by hour, that exist, whatever became of them."""
        return self._messages.known(hour, global_index)

    def state(self, hour: int, global_index: int) -> MessageState:
        """Return the state of a message."""
        return self._messages.state(self._release.cut, hour, global_index)

    def states(self, hour: Numbers, global_index: Numbers) -> NDArray[np.uint8]:
        """Return the MessageState of each message, places of shape (n,). Raises OSError and WheelDamaged."""
        return self._messages.states(self._release.cut, hour, global_index)

    def units(self, hour: Numbers, global_index: Numbers, *, thinned: bool = False) -> Rows:
        """Return index units, UNIT[n], in the order asked; due_ms = hour * HOUR_MS + due_in_hour_ms.

        Raises UnknownMessage where one does not exist, or has been thinned out; with `thinned` that is zero.
        """
        return self._messages.units(hour, global_index, thinned=thinned)

    def read(self, hour: Numbers, global_index: Numbers, pread: Pread | None = None) -> list[bytes | None]:
        """Read records in the order asked; None where one is damaged. Raises UnknownMessage.

        With `pread_cached` it raises NotCached where it would have to wait for the disk.
        """
        return self._messages.read(hour, global_index, pread)

    def places(self, hour: Numbers, global_index: Numbers) -> list[FilePlaces]:
        """Return where records lie, shape (n,), by file. Raises UnknownMessage."""
        return self._messages.places(hour, global_index)

    def parts(
        self, hour: Numbers, global_index: Numbers, start: NDArray[np.int64], bytes_max: int
    ) -> list[bytes]:
        """Read records from `start` on, shape (n,), `bytes_max` at most of each, in the order asked.

        Nothing proves it, and of a damaged one there may be less. Raises UnknownMessage.
        """
        return self._messages.parts(hour, global_index, start, bytes_max)

    def repair(self, hour: int, global_index: int, record: bytes) -> bool:
        """Write a record again, from a peer's bytes; False, and nothing done, where they are not its own."""
        return self._messages.repair(hour, global_index, record)

    def readable(self, hour: Numbers, global_index: Numbers) -> Flags:
        """Flag the messages, places of shape (n,) by hour, all known, that have not been thinned out."""
        return self._messages.readable(hour, global_index)

    def reread(self, hour: int) -> None:
        """Forget what was made of an hour's index."""
        partition = self._hours.written(hour)
        if partition is not None:
            partition.reread()
            self._release = Release(self._hours, self._settings, self.cut, self.local_index)

    def pending_per_second(self, hour: int) -> Numbers:
        """Return the number of pending messages of each second of an hour, u4[3600]."""
        partition = self._hours.find(hour)
        if partition is None or self._hours.counts.of(hour) == 0:
            return np.zeros(HOUR_SECONDS, np.uint32)
        live = partition.seconds.live()
        passed = self.tick - hour * HOUR_SECONDS
        if passed >= 0:
            live[:passed] = 0
            live[passed] = len(self._release.pending_in(self.tick))
        return live

    def pending_by_hour(self, hour: int, hours: int) -> Numbers:
        """Return the number of pending messages of each hour from `hour` on, u4[hours], from memory alone."""
        return self._hours.counts.by_hour(hour, hour + hours)

    def pending_hours(self, begin: int, end: int, most: int) -> list[int]:
        """Return the hours with pending messages from `begin` on, before `end`, the first `most` of them."""
        found = takewhile(lambda hour: hour < end, self._hours.counts.from_hour(begin))
        return list(islice(found, most))

    def open_seconds(self, hour: int) -> None:
        """Bring the slots of an hour into memory, without what is in the far log: some 0.3 ms.

        Raises OSError and WheelDamaged.
        """
        partition = self._hours.written(hour) if self._hours.counts.of(hour) else None
        if partition is not None:
            partition.seconds  # noqa: B018

    def pending_view(
        self, now_ms: int, seconds_of: Sequence[int], units_of: Sequence[int] = ()
    ) -> PendingView:
        """Capture hours, to count what is pending afterwards: by seconds of some, by units of others.

        Of those it has the seconds of, `open_seconds` should have been called before: it opens them else.
        Raises OSError and WheelDamaged.
        """
        return capture(self._folder, self._hours, self.cut, now_ms, seconds_of, units_of)

    def hours(self, end: int | None = None) -> tuple[int, ...]:
        """Return the hours that have units, ascending; only those before `end`, if given."""
        return self._hours.hours(end)

    def partitions(self) -> tuple[int, ...]:
        """Return the hours that have a partition, ascending."""
        return self._hours.partitions()

    def units_in_hour(self, hour: int) -> int:
        """Return the number of messages that an hour has ever got; 0 where it was dropped."""
        return self._hours.units(hour)

    def disk_bytes(self) -> int:
        """Return bytes of all files."""
        return self._hours.disk_bytes()

    def digest(self) -> bytes:
        """Return 32 bytes that are equal for wheels that got the same calls, and hardly ever otherwise."""
        topics, counts = self._hours.topics.capture(), self._hours.counts
        sums = counts.total, counts.message_sum.value
        told = self.cut, self.local_index, self._floor_hour, topics, *sums, *self._gaps.digests
        return hashlib.blake2b(repr(told).encode(), digest_size=32).digest()

    # Lasting

    def capture(self) -> WheelState:
        """Return the value from which, with the files, `recover` gives the wheel as it is now."""
        topics = self._hours.topics.capture()
        far = self._hours.far.capture()
        thinned = tuple((hour, one.index_crc) for hour, one in self._hours.thinned.items())
        captured = self._hours.capture()
        moved, gaps, floor = self._moved.capture(), self._gaps.capture(), self._floor_hour
        return WheelState(captured, self.cut, self.local_index, floor, topics, far, thinned, moved, gaps)

    def sync(self, state: WheelState, *, keep: bool = False) -> None:
        """Force to disk the files `state` needs; from any thread while this one goes on, one call at a time.

        States must come in the order they were captured in, and each be committed before the next call, which
        deletes the hours dropped before, unless told to `keep` them for now. Raises OSError: then the state
        must not be committed.
        """
        self._durability.sync(state, self._hours.dropped, self._hours.far.dropped, keep=keep)

    def committed(self, state: WheelState) -> None:
        """Give back the disk space of what was thinned out before a state that is durable now.

        From any thread, behind the `sync` of that state. Raises OSError.
        """
        for hour, index_crc in state.thinned:
            thinned = self._hours.thinned.get(hour)
            if thinned is not None and thinned.index_crc == index_crc:
                settle(self._folder / folder_name(hour), thinned.holes)
                self._hours.settled.append(thinned)
                self._hours.thinned.pop(hour, None)

    def punch_tails(self) -> None:
        """Give back what `committed`, in its thread, could not: the last page of a log may be appended to.

        Costs some 0.05 ms for each hour thinned since. Raises OSError.
        """
        self._hours.punch_tails()

    def sync_filesystem(self) -> bool:
        """Force all of the folder's file system to disk, from any thread; False where this system cannot.

        Raises OSError.
        """
        return self._durability.sync_filesystem()

    def close(self) -> None:
        """Close every file. What was appended since the last sync is in them, and not yet certain to stay."""
        self._hours.close()
        self._durability.close()
