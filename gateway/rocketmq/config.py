"""The file of the gateway for RocketMQ's clients: limits, access keys, secrets, types of topics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from tarry.gateway.settings_file import Table, read

Count: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000)]
Bytes: TypeAlias = Annotated[int, Field(ge=1_024, le=64 << 20)]
Duration: TypeAlias = Annotated[int, Field(ge=1, le=24 * 3_600_000)]
Type: TypeAlias = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION"]


class Limits(Table):
    """Bounds of what the gateway takes; beyond them it refuses, before its memory grows."""

    body_bytes_max: Bytes = Field(
        default=262_144,
        description="bytes of a message's body; no more than the nodes' `limits.body_bytes_max`",
    )
    sent_bytes_max: Bytes = Field(
        default=33_554_432, description="bytes of all `SendMessage` without an outcome yet"
    )
    batch_messages_max: Annotated[int, Field(ge=1, le=1_000)] = Field(
        default=100, description="messages of one `SendMessage`, handles of one `AckMessage`"
    )
    properties_max: Annotated[int, Field(ge=0, le=1_000)] = Field(
        default=128, description="properties of a message; the nodes' `limits.properties_max` counts, too"
    )
    properties_bytes_max: Bytes = Field(
        default=16_384, description="bytes of the names and values of a message's properties"
    )
    receive_messages_max: Annotated[int, Field(ge=1, le=1_000)] = Field(
        default=32, description="messages of one answer to `ReceiveMessage`"
    )
    wait_ms_max: Annotated[int, Field(ge=0, le=30_000)] = Field(
        default=20_000,
        description="how long `ReceiveMessage` may wait; no more than the nodes' `delivery.wait_ms_max`",
    )
    invisible_ms_min: Duration = Field(
        default=10_000,
        description="shortest invisible duration; no less than the nodes' `delivery.lease_ms_min`",
    )
    invisible_ms_max: Duration = Field(
        default=43_200_000, description="longest one; no more than the nodes' `delivery.lease_ms_max`"
    )
    call_ms: Duration = Field(
        default=10_000,
        description="in which a call is answered whose client names no deadline, and each message is read",
    )
    calls_max: Count = Field(default=1_000, description="calls at once that neither wait nor stream")
    polls_max: Count = Field(default=2_000, description="calls of `ReceiveMessage` at once")
    streams_max: Count = Field(default=2_000, description="streams of `Telemetry` at once")
    renewed_max: Count = Field(
        default=100_000, description="messages in push consumers' hands whose invisibility is renewed"
    )
    renewed_lease_ms: Annotated[int, Field(ge=1_000, le=3_600_000)] = Field(
        default=60_000, description="for which a push consumer's message stays invisible without a renewal"
    )
    renewed_ms_max: Duration = Field(
        default=10_800_000, description="for which a push consumer's message is kept invisible in all"
    )
    client_silent_ms: Duration = Field(
        default=40_000,
        description="after which nothing is renewed for a client that neither calls nor has a stream",
    )
    check_topics_max: Count = Field(
        default=500,
        description="topics whose producers here are asked how transactions ended, counted for each token, "
        "of which none may take more than half where there are several; "
        "no more than the nodes' `limits.check_streams_max` allow all gateways together",
    )
    checks_waiting_max: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=16, description="such questions that wait for a client which does not read them"
    )
    checks_bytes_max: Bytes = Field(
        default=8_388_608, description="bytes of the bodies of all questions that wait"
    )
    end_ms: Duration = Field(default=5_000, description="for which calls go on once it is told to end")

    @model_validator(mode="after")
    def _check(self) -> Limits:
        least_ms, most_ms = self.invisible_ms_min, self.invisible_ms_max
        if least_ms > most_ms:
            raise ValueError(
                f"invisible_ms_min ({least_ms}) must be no more than invisible_ms_max ({most_ms})"
            )
        return self


class Key(Table):
    """An access key, and the token of the cluster that it stands for."""

    access_key: str = Field(
        min_length=0, max_length=200, description="as clients send it; empty: clients without credentials"
    )
    secret_key: str = Field(default="", max_length=200, repr=False, description="that clients sign with")
    token: str = Field(min_length=1, max_length=1_000, repr=False, description="of the cluster")

    @model_validator(mode="after")
    def _check(self) -> Key:
        if bool(self.access_key) != bool(self.secret_key):
            raise ValueError("access_key and secret_key go together; neither: clients without credentials")
        if any(each in self.access_key for each in ",/"):
            raise ValueError("access_key: has no comma and no slash, where the header of clients ends it")
        if not self.token.isascii() or not self.token.isprintable():
            raise ValueError("token: only printable ASCII characters can be sent")
        return self


class Config(Table):
    """The whole file."""

    limits: Limits = Limits()
    key: list[Key] = Field(
        default=[], max_length=1_000, description="access keys; none: clients are not asked for one"
    )
    secrets: list[str] = Field(
        default=[],
        max_length=4,
        description="that sign handles, 16 characters at least; the first signs, all are accepted",
    )
    types: dict[str, list[Type]] = Field(
        default={}, description="topic -> the types of messages that it takes; others take all"
    )
    fifo_groups: list[str] = Field(
        default=[], description="groups whose push consumers repeat a failed message on their own, in order"
    )
    start: Literal["earliest", "latest"] = Field(default="earliest", description="where a new group begins")

    @field_validator("types")
    @classmethod
    def _types(cls, given: dict[str, list[Type]]) -> dict[str, list[Type]]:
        named = {_of_cluster(topic): types for topic, types in given.items()}
        if len(named) < len(given):
            raise ValueError("a topic is named twice, with % and with . in its place")
        return named

    @field_validator("fifo_groups")
    @classmethod
    def _fifo_groups(cls, given: list[str]) -> list[str]:
        return [_of_cluster(group) for group in given]

    @model_validator(mode="after")
    def _check(self) -> Config:
        names = [key.access_key for key in self.key]
        if len(set(names)) != len(names):
            raise ValueError("two keys have one access_key: give each its own")
        if any(len(secret) < 16 for secret in self.secrets):
            raise ValueError("secrets: each has 16 characters at least")
        if any(not types for types in self.types.values()):
            raise ValueError("types: name one type at least")
        return self


def _of_cluster(name: str) -> str:
    """Return a topic's or group's name, which may be as clients write it, as the cluster has it."""
    return name.replace("%", ".")


DEFAULT: Final = Config()


def load(path: Path) -> Config:
    """Return the configuration of a file. Raises OSError, and ValueError with a line for each fault."""
    return read(path, Config)
