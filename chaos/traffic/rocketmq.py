"""RocketMQ's own clients of several languages under load, each a program in a process, at gateways.

A program (of `rocketmq_programs`) is one client of each kind: a producer, a push
consumer of the group `push` and a simple consumer of the group `simple`, on one topic for all languages, so
that each gets what the others send. Rust's client has no push consumer, and recalls nothing.
A message's body is its token in decimal; by its last digit it is

| 0 | delayed, and recalled at once |
| 2, 5 | delayed, and recalled as it gets due |
| 4 | delayed; a push consumer fails at its first attempt |
| 7, 9 | delayed |
| 1, 6 | due at once |
| 3, 8 | due at once, of a message group |

A program tells each event as a line of JSON as it happens, times in ms of the wall clock:

| ["begun"] | all has started |
| ["sent", token, message group, due, sent, answered, message id, error] | an answer to a message |
| ["recalled", token, answered, error] | to a recall |
| ["got", group, token, message id, attempt, whether marked as a possible repetition, received] | a delivery |
| ["done", group, token, attempt, answered] | a simple consumer's acknowledgement was taken; not Go's |
| ["failed", "receive" or "ack", error] | another call failed |
| ["stopped"] | once a line came on its standard input: it sends no more |
| ["ended"] | once another came: all is shut down |
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tarry.chaos.cluster.cluster import mono_ms, now_ms
from tarry.chaos.history import Answer, Cancelled, Delivered, Done, GatewayClients, Sent
from tarry.chaos.traffic.traffic import patiently
from tarry.client.local.free_ports import free_ports
from tarry.client.local.rocketmq_programs import LANGUAGES, command_of, missing_rust

PROGRAMS: Final = Path(__file__).parent / "rocketmq_programs"
TOPIC: Final = "rocketmq"
GROUPS: Final = ("push", "simple")
CLIENTS: Final = {**LANGUAGES, "rust": missing_rust}
GROUPS_OF: Final = {"rust": ("simple",)}
"""Of clients that do not take part in all."""
REPEAT_NOTHING: Final = ("rust",)
"""Clients that send a message once, whatever the answer is."""
GATEWAYS: Final = 2
TOKENS: Final = 1_000_000
"""Tokens of one program; the last digit of its first one is 0."""
STEP_S: Final = 90.0
"""In which a program begins, stops or ends; on an idle machine it takes some seconds."""
COMES_S: Final = 90.0
"""Beyond the lease of what a push consumer had no answer about."""
ONE_TOO_MANY_S: Final = 3.0
"""In which what should not come would."""
WAS_GIVEN: Final = ("40401", "MESSAGE_NOT_FOUND")
"""In the error of a recall that came too late: a consumer was given the message."""


def no_clients() -> str:
    """Return why no language's client can be run; empty: one can."""
    if find_spec("pydantic") is None:
        return "the gateway is not installed: pip install 'tarry[rocketmq]'"
    reasons = [missing() for missing in LANGUAGES.values()]  # of those that take part in all
    return "" if "" in reasons else "; ".join(reasons)


@dataclass(slots=True)
class Program:
    """A running program, and how far it says that it is."""

    language: str
    process: Process
    errors: Path
    states: asyncio.Queue[str] = field(default_factory=asyncio.Queue)

    def next(self) -> None:
        """Tell it to go one step further."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")

    async def reaches(self, state: str) -> str:
        """Wait until it says that it is there; return why it is not."""
        try:
            async with asyncio.timeout(STEP_S):
                told = await self.states.get()
        except TimeoutError:
            told = f"nothing within {STEP_S:.0f} s"
        if told == state:
            return ""
        if not told:
            self.states.put_nowait("")  # the end of all states, also for whoever asks next
        errors = self.errors.read_text(errors="replace")[-2_000:]
        return f"the client for {self.language} has not {state}: {told or 'it has ended'}\n{errors}"


class Clients:
    """Clients of all languages that are there, at gateways; what they tell is written down."""

    def __init__(self, seen: GatewayClients, folder: Path) -> None:
        self.seen, self.folder = seen, folder
        self.left_out = {name: why for name, missing in CLIENTS.items() if (why := missing())}
        self.complaints: list[str] = []
        self.failed: Counter[str] = Counter()
        """Calls without success, by language and kind; those of a recall that came too late are none."""
        self.late_recalls = 0
        self._programs: list[Program] = []
        self._servers = ""
        self._gateways: list[Process] = []
        self._wall_ms = now_ms() - mono_ms()
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(GATEWAYS)]
        """Of the gateways."""
        seen.groups += [(TOPIC, group) for group in GROUPS]

    @property
    def languages(self) -> tuple[str, ...]:
        """The languages whose clients are there."""
        return tuple(name for name in CLIENTS if name not in self.left_out)

    @asynccontextmanager
    async def going_on(self, servers: str) -> AsyncIterator[None]:
        """Run gateways and clients while the block lasts, and have them end well."""
        reading: list[asyncio.Task[None]] = []
        async with self._gateways_going_on(servers):
            try:
                for number, language in enumerate(self.languages):
                    address = self.addresses[number % GATEWAYS]
                    program = await self._start(language, address, (number + 1) * TOKENS)
                    self._programs.append(program)
                    reading.append(asyncio.create_task(self.read(program)))
                await self._all_reach("begun")
                yield
            finally:
                for program in self._programs:
                    if program.process.returncode is None:
                        program.process.kill()
                await asyncio.gather(*reading)

    async def end(self) -> None:
        """Stop sending, wait until all has come, and end the clients."""
        for program in self._programs:
            program.next()
        await self._all_reach("stopped")
        if not await patiently(self._left, COMES_S):
            self.complaints.append("not every message came to each group of the clients")
        await asyncio.sleep(ONE_TOO_MANY_S)
        for program in self._programs:
            program.next()
        await self._all_reach("ended")
        for program in self._programs:
            code = await program.process.wait()
            if code:
                self.complaints.append(f"the client for {program.language} ended with {code}")
        self._expect_all_to_have_worked()

    def _expect_all_to_have_worked(self) -> None:
        for number, language in enumerate(self.languages, 1):
            answered = [one.token for one in self.seen.sent if one.answer is Answer.ACKNOWLEDGED]
            sent = sum(token // TOKENS == number for token in answered)
            groups = {one.group for one in self.seen.delivered if one.consumer == language}
            if not sent or groups != set(GROUPS_OF.get(language, GROUPS)):
                self.complaints.append(f"the client for {language} sent {sent}, and received in {groups}")

    async def _all_reach(self, state: str) -> None:
        told = await asyncio.gather(*(program.reaches(state) for program in self._programs))
        self.complaints += filter(None, told)

    async def _left(self) -> int | None:
        """Return how many deliveries there are; None: nothing is left to come."""
        gone = {one.token for one in self.seen.cancelled}
        wanted = {one.token for one in self.seen.sent if one.answer is Answer.ACKNOWLEDGED} - gone
        here = {(one.group, one.token) for one in self.seen.delivered}
        left = any((group, token) not in here for group in GROUPS for token in wanted)
        return len(here) if left else None

    async def restart_gateway(self, number: int, away_s: float) -> None:
        """Kill a gateway (SIGKILL), and start it again at its address."""
        killed = self._gateways[number]
        if killed.returncode is None:
            killed.kill()
            await killed.wait()
        else:
            self.complaints.append(f"a gateway ended with {killed.returncode} by itself")
        await asyncio.sleep(away_s)
        self._gateways[number] = await self._start_gateway(number)
        await self._has_started(self._gateways[number])

    @asynccontextmanager
    async def _gateways_going_on(self, servers: str) -> AsyncIterator[None]:
        """Run gateways, of which each tells clients of all; they have to end well."""
        self._servers = servers
        try:
            for number in range(GATEWAYS):
                self._gateways.append(await self._start_gateway(number))
            for process in self._gateways:
                await self._has_started(process)
            yield
            for process in self._gateways:
                if process.returncode is None:
                    process.send_signal(signal.SIGTERM)
            for number, process in enumerate(self._gateways):
                code = await asyncio.wait_for(process.wait(), STEP_S)
                if code:
                    told_last = self._log_of(number).read_text(errors="replace")[-2_000:]
                    self.complaints.append(f"a gateway ended with {code}: {told_last}")
        finally:
            for process in self._gateways:
                if process.returncode is None:
                    process.kill()

    async def _start_gateway(self, number: int) -> Process:
        told = [argument for address in self.addresses for argument in ("--advertise", address)]
        command = [sys.executable, "-m", "tarry.node", "gateway", "rocketmq", "-o", "json", *told]
        with self._log_of(number).open("ab") as errors:
            return await asyncio.create_subprocess_exec(
                *command,
                "--listen",
                self.addresses[number],
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "TARRY_SERVER": self._servers},
            )

    async def _has_started(self, gateway: Process) -> None:
        assert gateway.stdout is not None
        if not await asyncio.wait_for(gateway.stdout.readline(), STEP_S):
            self.complaints.append("a gateway has not started")

    def _log_of(self, number: int) -> Path:
        return self.folder / f"gateway-{number + 1}.log"

    async def _start(self, language: str, address: str, token: int) -> Program:
        home = self.folder / language
        home.mkdir()
        command = await command_of(language, PROGRAMS, "load", home)
        errors = self.folder / f"{language}.log"
        with errors.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                *command.words,
                address,
                TOPIC,
                str(token),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                cwd=home,
                env={**os.environ, **command.environment},
            )
        return Program(language, process, errors)

    async def read(self, program: Program) -> None:
        """Write down what a program tells, until it ends."""
        assert program.process.stdout is not None
        async for line in program.process.stdout:
            if line.startswith(b'["'):  # others are what the client says itself
                self._record(program, json.loads(line))
        await program.process.wait()
        program.states.put_nowait("")

    def _record(self, program: Program, told: list[Any]) -> None:
        """Write down one event of a program."""
        language = program.language
        match told:
            case ["sent", token, key, due_ms, sent_ms, answered_ms, found, error]:
                answer = Answer.UNKNOWN if error else Answer.ACKNOWLEDGED
                self.failed[f"{language} send"] += bool(error)
                one = Sent(
                    token, TOPIC, due_ms, sent_ms, sent_ms - self._wall_ms, answer, answered_ms,
                    answered_ms - self._wall_ms, found, due_ms, error, key,
                )  # fmt: skip
                self.seen.sent.append(one)
            case ["recalled", token, answered_ms, error] if not error:
                self.seen.cancelled.append(Cancelled(token, answered_ms))
            case ["recalled", token, answered_ms, error]:
                if any(text in error for text in WAS_GIVEN):
                    self.late_recalls += 1
                else:
                    self.failed[f"{language} recall"] += 1
                    self.seen.cancelled.append(Cancelled(token, answered_ms, certain=False))
            case ["got", group, token, found, attempt, marked, received_ms]:
                one_more = Delivered(
                    token, TOPIC, group, found, 0, attempt, marked, received_ms,
                    received_ms - self._wall_ms, language,
                )  # fmt: skip
                self.seen.delivered.append(one_more)
            case ["done", group, token, attempt, answered_ms]:
                self.seen.done.append(Done(group, token, attempt, answered_ms))
            case ["failed", what, _]:
                self.failed[f"{language} {what}"] += 1
            case [state]:
                program.states.put_nowait(state)
            case _:
                self.complaints.append(f"the client for {language} told {told}")
