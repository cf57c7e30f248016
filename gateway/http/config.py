"""The gateway's file: its limits, and the groups whose messages it posts to a URL."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field, model_validator

from tarry.gateway.http.fields import COUNT_MAX
from tarry.gateway.push.settings import Push
from tarry.gateway.settings_file import Table, read

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Bytes = Annotated[int, Field(ge=1_024, le=1 << 30)]
BODY_BYTES_MAX: Final = 8 << 20
"""Of more the client might make two requests, of which the cluster takes one."""
Duration = Annotated[int, Field(ge=1, le=24 * 3_600_000)]


class Limits(Table):
    """Bounds of what the gateway takes; beyond them it refuses, before its memory grows."""

    body_bytes_max: Annotated[int, Field(ge=1_024, le=BODY_BYTES_MAX)] = Field(
        default=1_048_576, description="bytes of a request's body, 8 MiB at most"
    )
    bodies_bytes_max: Bytes = Field(
        default=33_554_432, description="bytes of the bodies of all requests at once"
    )
    head_ms: Duration = Field(
        default=10_000,
        description="in which a request's head has to have come, from its connection's beginning or from the "
        "last answer on; before that a TLS handshake",
    )
    body_ms: Duration = Field(default=10_000, description="in which a request's body has to have come")
    answer_ms: Duration = Field(
        default=60_000,
        description="in which a caller has to have taken an answer, or of a stream what waits; then its "
        "connection is cut",
    )
    batch_messages_max: Annotated[int, Field(ge=1, le=COUNT_MAX)] = Field(
        default=1_000, description="messages, ids or handles of one request"
    )
    receive_messages_max: Annotated[int, Field(ge=1, le=1_000)] = Field(
        default=100, description="messages of one answer to `receive`"
    )
    wait_ms_max: Annotated[int, Field(ge=0, le=30_000)] = Field(
        default=30_000,
        description="how long `receive` may wait; no more than the nodes' `delivery.wait_ms_max`",
    )
    calls_max: Count = Field(default=200, description="requests at once that neither wait nor stream")
    polls_max: Count = Field(default=200, description="calls of `receive` at once")
    streams_max: Count = Field(default=200, description="event streams at once")
    credit_max: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=1_000, description="messages in hand of one event stream"
    )
    stream_bytes_max: Bytes = Field(
        default=1_048_576, description="bytes of records in hand of one event stream"
    )
    stream_ms_max: Annotated[int, Field(ge=1_000, le=7 * 24 * 3_600_000)] = Field(
        default=3_600_000, description="how long an event stream may last"
    )
    keep_alive_ms: Duration = Field(
        default=15_000, description="between two comments on a stream without events"
    )
    tokens_max: Count = Field(default=100, description="tokens in use, each with a client of its own")
    tokens_tried_max: Count = Field(
        default=20, description="tokens at once of which no node has known one yet"
    )
    token_idle_ms: Duration = Field(
        default=600_000, description="a client of a token is closed after so long"
    )
    connections_max: Count = Field(default=2_000, description="connections; others are closed at once")
    end_ms: Duration = Field(
        default=10_000, description="for which requests and posts go on once it is told to end"
    )


class Config(Table):
    """The whole file."""

    limits: Limits = Limits()
    push: list[Push] = Field(default=[], max_length=100)

    @model_validator(mode="after")
    def _check_names(self) -> Config:
        names = [push.name for push in self.push]
        if len(set(names)) != len(names):
            raise ValueError("two pushes have one name: give each its own")
        return self


DEFAULT: Final = Config()


def load(path: Path) -> Config:
    """Return the configuration of a file. Raises OSError, and ValueError with a line for each fault."""
    config = read(path, Config)
    _check_authorities(config)
    return config


def _check_authorities(config: Config) -> None:
    for push in config.push:
        if push.authority_file is not None:
            try:
                ssl.create_default_context(cafile=push.authority_file)
            except ssl.SSLError:
                raise ValueError(f"push {push.name}: {push.authority_file} is no PEM file") from None
