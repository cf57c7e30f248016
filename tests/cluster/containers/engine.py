"""A compose file carried out: containers with networks, volumes, ports, health checks and restarts.

    host  127.0.0.1:7001 ─ forwarder ─┐
      └── bridge ── n1, n2, n3: a network namespace each, names in /etc/hosts

The machine that the file takes for its host is a network namespace, too, so ports of this one are not needed.
It is driven by `turn`, from the main thread: Linux ends children that ask for it with the thread that started
them. Whatever of a compose file is not carried out here is refused.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.cluster.containers.image import Image
from tests.cluster.containers.processes import Bind, Entry, first_process, started, wait_for_end

SERVICE_KEYS = {
    "build", "command", "configs", "environment", "healthcheck", "image", "ports", "restart",
    "stop_grace_period", "volumes",
}  # fmt: skip
HEALTH_KEYS = {"test", "interval", "timeout", "retries", "start_period"}
FILE_KEYS = {"services", "volumes", "configs"}
BACK_OFF_S = 0.1  # twice as long before each next restart
TURN_S = 0.05

# Runs in the host's namespace: what Docker's own forwarder does for a published port.
FORWARD = """
import asyncio, sys

async def pump(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()

async def main(host, port, to_host, to_port):
    async def serve(reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection(to_host, to_port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    async with await asyncio.start_server(serve, host, int(port)) as server:
        await server.serve_forever()

asyncio.run(main(*sys.argv[1:]))
"""


class NotCarriedOut(Exception):
    """The compose file did not do what was expected of it; the message has the containers' logs."""


@dataclass
class Container:
    """One service: its process while it has one, its health, and how it has ended so far."""

    name: str
    service: Mapping[str, Any]
    address: str
    binds: list[Bind]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    stopped: bool = False
    exits: list[int] = field(default_factory=list)
    ended_s: float = 0.0
    health: str = "starting"
    failures: int = 0
    check: subprocess.Popen[bytes] | None = None
    check_s: float = 0.0  # when the next check begins, or this one began

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def first(self) -> int | None:
        """The container's first process, as this machine numbers it; None: it has none.

        So it is after its start, while namespaces are made, and until its end is noticed.
        """
        return first_process(self.process) if self.process is not None else None

    @property
    def pid(self) -> int:
        """The first process of a container that runs. Raises NotCarriedOut."""
        pid = self.first
        if pid is None:
            raise NotCarriedOut(f"{self.name} does not run, ended with {self.exits}")
        return pid


class Engine:
    """Carries out one compose file; a context manager that leaves nothing behind."""

    def __init__(self, compose: Mapping[str, Any], image: Image, folder: Path) -> None:
        """Take a parsed file and the image of its services. Raises NotCarriedOut for what is unknown here."""
        self._compose = compose
        self._image = image
        self._folder = folder
        self._mark = f"tc{os.getpid() % 100_000}"
        self._forwarders: list[subprocess.Popen[bytes]] = []
        self.services = services_without_profile(compose)
        self._net = "172.31.255"
        self._addresses = {name: f"{self._net}.{number}" for number, name in enumerate(self.services, 2)}
        self.containers: dict[str, Container] = {}
        self._refuse_the_unknown()
        folder.mkdir()

    def _refuse_the_unknown(self) -> None:
        unknown = {key for key in self._compose if key not in FILE_KEYS and not key.startswith("x-")}
        for service in self.services.values():
            unknown |= service.keys() - SERVICE_KEYS
            unknown |= service.get("healthcheck", {}).keys() - HEALTH_KEYS
        if unknown:
            raise NotCarriedOut(f"nothing here carries out {sorted(unknown)}")

    def __enter__(self) -> Self:
        try:
            self._make_network()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._close()

    def _space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def _make_network(self) -> None:
        host = self._space("host")
        _ip("netns", "add", host)
        _ip("-n", host, "link", "set", "lo", "up")
        _ip("-n", host, "link", "add", "bridge", "type", "bridge")
        _ip("-n", host, "address", "add", f"{self._net}.1/24", "dev", "bridge")
        _ip("-n", host, "link", "set", "bridge", "up")
        for number, (name, address) in enumerate(self._addresses.items()):
            space, cable = self._space(name), f"cable{number}"
            _ip("netns", "add", space)
            _ip("-n", host, "link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", host, "link", "set", cable, "master", "bridge", "up")
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")

    def _close(self) -> None:
        for container in self.containers.values():
            if container.process is not None:
                first = first_process(container.process)
                container.process.kill()
                container.process.wait()
                if first is not None:
                    wait_for_end(first)
        for forwarder in self._forwarders:
            forwarder.kill()
            forwarder.wait()
        for name in ("host", *self.services):
            subprocess.run(["ip", "netns", "del", self._space(name)], check=False, capture_output=True)

    def up(self) -> None:
        """Make a container of each service, anew, and start it; volumes with a name are kept."""
        for name, service in self.services.items():
            binds = [self._hosts(), *self._configs(service), *self._volumes(name, service)]
            log = self._folder / f"{name}.log"
            self.containers[name] = Container(name, service, self._addresses[name], binds, log)
            self._start(self.containers[name])
            self._forwarders += [self._forward(port, name) for port in service.get("ports", ())]

    def down(self) -> None:
        """Stop every container as an operator does, and forget it with its volumes without a name."""
        for container in self.containers.values():
            self.stop(container)
        for forwarder in self._forwarders:
            forwarder.kill()
            forwarder.wait()
        self._forwarders.clear()
        for folder in self._folder.glob("anonymous-*"):
            shutil.rmtree(folder)

    def stop(self, container: Container) -> None:
        """End a container by SIGTERM; after its grace by SIGKILL."""
        container.stopped = True
        if container.process is not None:
            with suppress(ProcessLookupError):  # it ends by itself
                if (first := container.first) is not None:
                    os.kill(first, signal.SIGTERM)
            try:
                container.process.wait(seconds(container.service.get("stop_grace_period", "10s")))
            except subprocess.TimeoutExpired:
                container.process.kill()
                container.process.wait()
        self._note_the_end(container)

    def host(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the host."""
        return subprocess.run(
            ["ip", "netns", "exec", self._space("host"), *command],
            check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    def until(self, ready: Callable[[], bool], patience_s: float, what: str) -> None:
        """Wait for something, doing meanwhile what an engine does. Raises NotCarriedOut."""
        until_s = time.monotonic() + patience_s
        while not ready():
            if time.monotonic() > until_s:
                raise NotCarriedOut(f"not within {patience_s} s: {what}\n{self.logs()}")
            self.turn()
            time.sleep(TURN_S)

    def until_healthy(self) -> None:
        """Wait for every container's health. Raises NotCarriedOut, at once where one ends or is unhealthy."""
        since = {name: len(container.exits) for name, container in self.containers.items()}

        def healthy() -> bool:
            for name, container in self.containers.items():
                if container.health == "unhealthy" or len(container.exits) > since[name]:
                    raise NotCarriedOut(
                        f"{name} is {container.health}, ended with {container.exits}\n{self.logs()}"
                    )
            return all(container.health == "healthy" for container in self.containers.values())

        longest_s = max(
            seconds(health["start_period"])
            + (health["retries"] + 1) * (seconds(health["interval"]) + seconds(health["timeout"]))
            for health in (service["healthcheck"] for service in self.services.values())
        )
        self.until(healthy, longest_s, "all are healthy")

    def turn(self) -> None:
        """Restart what has ended, as the file says, and go on with health checks."""
        for container in self.containers.values():
            if container.running:
                self._look_after(container)
            elif not container.stopped:
                self._restart(container)

    def logs(self) -> str:
        """Return the ends of the containers' logs."""
        return "\n".join(
            f"-- {name}\n{container.log.read_text(errors='replace')[-1_500:]}"
            for name, container in self.containers.items()
        )

    def _start(self, container: Container) -> None:
        settings = self._image.settings
        command = [*settings.entrypoint, *(container.service.get("command") or settings.command)]
        entry = self._entry(container, command, *container.binds)
        with container.log.open("ab") as log:
            container.process = started(entry.argv(self._space(container.name)), log)
        container.started_s = time.monotonic()
        container.health, container.failures, container.check = "starting", 0, None
        container.check_s = container.started_s + seconds(container.service["healthcheck"]["interval"])

    def _entry(self, container: Container, command: Sequence[str], *binds: Bind) -> Entry:
        """Return how a command runs in a container: with the image's environment and the service's."""
        entry = self._image.entry(list(command), *binds)
        own = container.service.get("environment", {})
        if not isinstance(own, Mapping) or any("$" in str(value) for value in own.values()):
            raise NotCarriedOut("an environment is taken as names with values, and variables are not put in")
        return replace(entry, environment={**entry.environment, **own})

    def _restart(self, container: Container) -> None:
        self._note_the_end(container)
        policy = container.service.get("restart", "no")
        failed = container.exits[-1] != 0
        again = policy in {"always", "unless-stopped"} or (policy == "on-failure" and failed)
        if not again:
            container.stopped = True
        elif time.monotonic() - container.ended_s > BACK_OFF_S * 2 ** len(container.exits):
            self._start(container)

    def _note_the_end(self, container: Container) -> None:
        if container.process is None:
            return
        container.exits.append(container.process.wait())
        container.process, container.ended_s = None, time.monotonic()
        if container.check is not None:
            container.check.kill()
            container.check.wait()

    def _look_after(self, container: Container) -> None:
        health = container.service["healthcheck"]
        now_s = time.monotonic()
        if container.check is None:
            if now_s >= container.check_s and (first := container.first) is not None:
                container.check_s = now_s
                container.check = self._checking(container, first, health["test"])
            return
        code = container.check.poll()
        if code is None:
            if now_s - container.check_s < seconds(health["timeout"]):
                return
            container.check.kill()
            code = container.check.wait()
        container.check, container.check_s = None, now_s + seconds(health["interval"])
        if code == 0:
            container.health, container.failures = "healthy", 0
        elif container.health != "starting" or now_s - container.started_s > seconds(health["start_period"]):
            container.failures += 1
            if container.failures >= health["retries"]:
                container.health = "unhealthy"

    def _checking(self, container: Container, first: int, test: Sequence[str]) -> subprocess.Popen[bytes]:
        kind, *command = test
        if kind != "CMD":
            raise NotCarriedOut(f"a health check is taken as CMD only, not {kind}")
        entry = self._entry(container, command)
        inside = ["--target", str(first), "--mount", "--net", "--pid", "--root", "--wd"]
        user = ["--setuid", str(entry.uid), "--setgid", str(entry.gid)]
        environment = [f"{key}={value}" for key, value in entry.environment.items()]
        with container.log.open("ab") as log:
            return started(
                ["setpriv", "--pdeathsig", "KILL", "nsenter", *inside, *user,
                 "/usr/bin/env", "-i", *environment, *command], log
            )  # fmt: skip

    def _hosts(self) -> Bind:
        file = self._folder / "hosts"
        lines = [
            f"{address} {name}" for name, address in {"localhost": "127.0.0.1", **self._addresses}.items()
        ]
        file.write_text("".join(f"{line}\n" for line in lines))
        return Bind(str(file), "/etc/hosts", read_only=True)

    def _configs(self, service: Mapping[str, Any]) -> list[Bind]:
        binds = []
        for config in service.get("configs", ()):
            content = self._compose["configs"][config["source"]]["content"]
            if "$" in content:
                raise NotCarriedOut("variables are not put in here")
            file = self._folder / f"config-{config['source']}"
            file.write_text(content)
            file.chmod(0o444)
            binds.append(Bind(str(file), config["target"], read_only=True))
        return binds

    def _volumes(self, name: str, service: Mapping[str, Any]) -> list[Bind]:
        binds = []
        for volume in service.get("volumes", ()):
            source, target = volume.split(":")
            if source not in self._compose["volumes"]:
                raise NotCarriedOut(f"{source} is no volume of the file")
            binds.append(Bind(str(self._volume(f"volume-{source}", target)), target))
        for target in self._image.settings.volumes:
            if target not in {bind.target for bind in binds}:
                mark = target.replace("/", "-")
                binds.append(Bind(str(self._volume(f"anonymous-{name}{mark}", target)), target))
        return binds

    def _volume(self, name: str, target: str) -> Path:
        """Make a volume; it begins with what the image has at its place, owner and mode included."""
        folder = self._folder / name
        if not folder.exists():
            there = self._image.root / target.lstrip("/")
            if there.is_dir():
                subprocess.run(["cp", "--archive", str(there), str(folder)], check=True)
            else:
                folder.mkdir()
        return folder

    def volume(self, name: str) -> Path:
        """Return the folder of a volume with a name."""
        return self._folder / f"volume-{name}"

    def _forward(self, port: str, name: str) -> subprocess.Popen[bytes]:
        host, outside, inside = port.split(":")
        argv = [sys.executable, "-c", FORWARD, host, outside, self._addresses[name], inside]
        with (self._folder / "forwarders.log").open("ab") as log:
            return started(
                ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", self._space("host"), *argv], log
            )


def services_without_profile(compose: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the services that compose starts where no profile is asked for."""
    return {name: service for name, service in compose["services"].items() if not service.get("profiles")}


def seconds(text: str) -> float:
    """Return a duration of a compose file, such as 1m30s or 500ms. Raises ValueError."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
    parts = re.findall(r"(\d+)(ms|s|m|h)", text)
    if "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text} is no duration")
    return sum(int(number) * units[unit] for number, unit in parts)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
