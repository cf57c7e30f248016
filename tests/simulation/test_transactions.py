"""Transactions in whole clusters: what is committed is released once, and nothing else, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tarry.proto import tarry_transaction_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal
from tests.simulation import faults
from tests.simulation.model_producer import ModelProducer
from tests.simulation.model_transactions import COMMIT, GROUP, ROLLBACK, TOPIC, Transactions
from tests.simulation.test_recurring import kill, transfer
from tests.simulation.test_whole_flushing import begin_async
from tests.simulation.upgrade import until_raised
from tests.simulation.whole_scenario import scenario
from tests.simulation.whole_world import WholeWorld

Play = Callable[[WholeWorld, Transactions], Awaitable[None]]


async def begin_raised(world: WholeWorld) -> None:
    world.finish = "auto"
    world.start()
    await world.until_served()
    await until_raised(world)


def played(
    play: Play, *, producers: int = 2, begin: Callable[[WholeWorld], Awaitable[None]] = begin_raised
) -> Transactions:
    """With producers that answer checks; settled and judged at the end."""
    kept: list[Transactions] = []

    async def run(world: WholeWorld, _: ModelProducer) -> None:
        transactions = Transactions(world, 1)
        kept.append(transactions)
        answering = [asyncio.create_task(transactions.answer_checks()) for _ in range(producers)]
        try:
            await play(world, transactions)
            await world.mend()
            if producers:
                await transactions.settle()
                transactions.judge()
        finally:
            for task in answering:
                task.cancel()
            ended = await asyncio.gather(*answering, return_exceptions=True)
        assert not [one for one in ended if isinstance(one, Exception)], ended

    scenario(run, consumers=False, begin=begin)
    return kept[0]


def test_half_message_leader_killed() -> None:
    """Leaders are killed and transferred over half messages; each is asked about, and ends as it has to."""

    async def play(world: WholeWorld, transactions: Transactions) -> None:
        for number in range(24):
            end = COMMIT if world.rng.random() < 0.6 else ROLLBACK
            await transactions.prepare(f"o-{number}", end, check_after_ms=world.rng.randrange(1, 2_500))
            if number % 3 == 0:
                await transactions.end(f"o-{number}")
            await asyncio.sleep(world.rng.uniform(0.0, 0.4))
            await (kill, transfer)[number % 2](world)

    transactions = played(play)
    assert transactions.counts["checks"] >= 16
    assert 5 < transactions.counts["released"] < 20


def test_producer_gone_group_answers() -> None:
    """Whoever prepared says nothing more: another producer of the group is asked."""

    async def play(world: WholeWorld, transactions: Transactions) -> None:
        for number in range(10):
            await transactions.prepare(f"o-{number}", (COMMIT, ROLLBACK)[number % 2])
        await asyncio.sleep(4)
        assert not (await world.until_served()).core.machine.transactions.rows(ended=False)

    transactions = played(play, producers=1)
    assert transactions.counts["checks"] == 10
    assert transactions.counts["released"] == 5


def test_checks_exhausted() -> None:
    """No producer ever answers: the message is a dead letter, also where a leader is killed in between."""

    async def play(world: WholeWorld, transactions: Transactions) -> None:
        request = pb.PrepareRequest(producer_group="gone", transaction="o-1", topic=TOPIC, delay_ms=0)
        await transactions.ask("prepare", request, pb.PrepareResponse)
        await asyncio.sleep(0.7)
        await kill(world)
        await asyncio.sleep(6)
        end = pb.EndTransactionRequest(producer_group="gone", transaction="o-1", end=COMMIT)
        refused = await transactions.ask("end_transaction", end, pb.EndTransactionResponse)
        assert isinstance(refused, Refusal)
        assert (refused.reason, refused.facts["state"]) == (Reason.TRANSACTION_ENDED, "UNRESOLVED")
        assert len(world.rows.released[f"dlq.transactions.{TOPIC}"]) == 1
        assert not world.rows.released[TOPIC]

    played(play, producers=0)


def test_commit_races_check() -> None:
    """A commit comes around the moment of the check, while the leader has the record in hand."""

    async def play(world: WholeWorld, transactions: Transactions) -> None:
        for number in range(60):
            name = f"o-{number}"
            await transactions.prepare(name, COMMIT, check_after_ms=100)
            await asyncio.sleep(0.06 + 0.0015 * number)
            both = await asyncio.gather(transactions.end(name), transactions.end(name))
            assert both[0].transaction.id == both[1].transaction.id
            other = await transactions.end(name, ROLLBACK)
            assert isinstance(other, Refusal)
            assert other.reason is Reason.TRANSACTION_ENDED

    transactions = played(play)
    assert transactions.counts["released"] == 60
    assert transactions.counts["checks"] > 3


def test_of_a_commit_and_a_rollback_at_once_one_ends_the_transaction_and_the_other_is_refused() -> None:
    async def play(world: WholeWorld, transactions: Transactions) -> None:
        won = set()
        for number in range(30):
            name = f"o-{number}"
            await transactions.prepare(name, COMMIT, check_after_ms=60_000)
            ends = [COMMIT, ROLLBACK]
            told = asyncio.gather(*(transactions.end(name, end) for end in ends))
            if number % 10 == 9:
                await kill(world)
            (winner,) = (
                end for end, one in zip(ends, await told, strict=True) if not isinstance(one, Refusal)
            )
            (refused,) = (one for one in await told if isinstance(one, Refusal))
            assert refused.reason is Reason.TRANSACTION_ENDED
            assert refused.facts["state"] == ("COMMITTED" if winner == COMMIT else "ROLLED_BACK")
            transactions.ends[name] = winner
            won.add(winner)
        assert won == {COMMIT, ROLLBACK}

    transactions = played(play)
    assert 0 < transactions.counts["released"] < 30


def test_a_check_that_nobody_has_answered_is_asked_again_after_a_failover() -> None:
    """A producer is asked and says nothing; the leader dies, and the next one asks about the same."""

    async def play(world: WholeWorld, transactions: Transactions) -> None:
        for change in (kill, transfer, kill):
            name = f"o-{change.__name__}-{len(transactions.ends)}"
            transactions.silent.add(name)
            await transactions.prepare(name, COMMIT, check_after_ms=50)
            await transactions.until_asked(name, 1)
            before = transactions.asked[name]
            await change(world)
            await transactions.until_asked(name, before + 1)
            transactions.silent.clear()

    transactions = played(play, producers=1)
    assert transactions.counts["released"] == 3


def test_a_power_loss_of_all_nodes_leaves_every_transaction_and_its_check() -> None:
    async def play(world: WholeWorld, transactions: Transactions) -> None:
        for number in range(8):
            await transactions.prepare(f"o-{number}", (COMMIT, ROLLBACK)[number % 2])
        for node in world.whole:
            node.crash()
        for node in world.whole:
            faults.restart(world, node)
        await world.until_served()

    transactions = played(play)
    assert transactions.counts["released"] == 4


def test_whatever_the_durability_a_prepare_and_an_end_are_answered_once_a_majority_has_flushed_them() -> None:
    async def play(world: WholeWorld, transactions: Transactions) -> None:
        async def flushed(before: int, call: Awaitable[object]) -> None:
            await call
            assert sum(node.journal.flushed_index > before for node in world.whole) >= 2

        def asked(name: str) -> bytes:
            one = pb.EndTransactionRequest(
                producer_group=GROUP, transaction=name, end=transactions.ends[name]
            )
            return one.SerializeToString()

        leader = await world.until_served()
        for number in range(3):
            name, before = f"o-{number}", leader.core.machine.applied_index
            await flushed(before, transactions.prepare(name, (COMMIT, ROLLBACK)[number % 2]))
            before = leader.core.machine.applied_index
            ends = [asyncio.create_task(flushed(before, transactions.end(name)))]
            for _ in range(200):  # be it flushed or not, some find it ended
                ends.append(asyncio.create_task(flushed(before, leader.edge.end_transaction(asked(name)))))
                await asyncio.sleep(0.0001)
            await asyncio.gather(*ends)

    played(play, begin=begin_async)
