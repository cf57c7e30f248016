"""Settings of a push: a group of which each message is posted to a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from tarry.client.start_position import Start
from tarry.gateway.settings_file import Table
from tarry.gateway.times import time_ms


class Push(Table):
    """A group of which each message is posted to a URL."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,60}$", description="of the push, in the log")]
    topic: Annotated[str, Field(min_length=1, max_length=200, description="whose messages")]
    group: Annotated[str, Field(min_length=1, max_length=100, description="to which they count")]
    url: Annotated[str, Field(max_length=2_000, description="where they are posted")]
    secrets: Annotated[list[str], Field(min_length=1, max_length=2)] = Field(
        repr=False, description="that sign them, 16 characters at least; two while they are changed"
    )
    token: str | None = Field(
        default=None, repr=False, description="to consume with; without: that of `--token`"
    )
    tags: list[str] = Field(default=[], max_length=100, description="only messages with any of these")
    filter: Annotated[str, Field(max_length=2_048)] = Field(
        default="", description="only messages of whose properties this SQL92 condition is true"
    )
    start: str | None = Field(
        default=None, description="where a new group begins: `earliest`, `latest`, or a time"
    )
    in_flight_max: Annotated[int, Field(ge=1, le=1_000)] = Field(default=16, description="posts at once")
    timeout_ms: Annotated[int, Field(ge=10, le=600_000)] = Field(
        default=10_000, description="for the whole of a post and its answer"
    )
    retry_after_ms_max: Annotated[int, Field(ge=0, le=24 * 3_600_000)] = Field(
        default=3_600_000, description="how far a receiver's `Retry-After` may put off the next attempt"
    )
    content_type: Annotated[str, Field(pattern=r"^[\x21-\x7e ]{1,200}$")] = Field(
        default="application/octet-stream", description="of messages without a property `content-type`"
    )
    allow_private: bool = Field(
        default=False, description="post to private, loopback and link-local addresses, too, and without TLS"
    )
    redirects_max: Annotated[int, Field(ge=0, le=5)] = Field(
        default=0, description="redirects with 307 or 308 that are followed"
    )
    authority_file: Path | None = Field(
        default=None,
        strict=False,
        description="PEM file of the authority that signs the receiver's certificate",
    )

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in {"https", "http"} or not parts.hostname or not url.isascii():
            raise ValueError("give an ASCII URL with https or http and a host")
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise ValueError("a URL has no user, password or fragment here")
        _ = parts.port  # raises ValueError for one out of range
        return url

    @field_validator("secrets")
    @classmethod
    def _check_secrets(cls, secrets: list[str]) -> list[str]:
        if any(len(secret) < 16 for secret in secrets):
            raise ValueError("a secret has 16 characters at least")
        return secrets

    @field_validator("token")
    @classmethod
    def _check_token(cls, token: str | None) -> str | None:
        if token is not None and not (token and token.isascii() and token.isprintable()):
            raise ValueError("only printable ASCII characters can be sent, and one at least")
        return token

    @field_validator("start")
    @classmethod
    def _check_start(cls, start: str | None) -> str | None:
        if start not in {None, "earliest", "latest"}:
            time_ms(str(start))
        return start

    @model_validator(mode="after")
    def _check_tls(self) -> Push:
        if urlsplit(self.url).scheme == "http" and not self.allow_private:
            raise ValueError("http is readable on its way: give an https URL, or allow_private = true")
        return self

    @property
    def begin(self) -> Start | None:
        """Position at which a new group begins, as the client takes it."""
        match self.start:
            case None | "earliest" | "latest" as start:
                return start
            case time:
                return time_ms(time)
