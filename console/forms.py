"""Fields of settings in forms: how each is read and shown."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import typer

from tarry.client.cli.policies import parse_back_off, texts_of
from tarry.client.cli.times import duration_text, parse_duration_ms, parse_start, parse_time_ms
from tarry.client.durability import Durability
from tarry.client.integers import INT64_MAX
from tarry.client.operators.topic_settings import Misfire
from tarry.client.start_position import Start


@dataclass(frozen=True, slots=True)
class Field:
    """A setting. ``read`` makes its value of a text, and raises ValueError with what is wrong."""

    name: str
    title: str
    read: Callable[[str], Any]
    show: Callable[[Any], str]
    hint: str
    choices: Sequence[str] = ()


TEXT_CHARACTERS_MAX: Final = 40
"""Of a number, duration or time."""


class Misread(ValueError):
    """Fields that cannot be read: name -> why."""

    def __init__(self, faults: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {why}" for name, why in faults.items()))
        self.faults = faults


def read_duration(text: str) -> int:
    """Return the milliseconds of ``1m30s``. Raises ValueError."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ValueError(f"a duration has {TEXT_CHARACTERS_MAX} characters at most")
    return int(_typed(parse_duration_ms, text))


def read_number(text: str) -> int:
    """Return a whole number, of which thousands may be set off by commas. Raises ValueError."""
    digits = text.replace(",", "")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 20:
        raise ValueError(f"{text[:40]!r} is no whole number from 0 on")
    return int(digits)


def read_time(text: str) -> int:
    """Return the ms since the epoch of a due time. Raises ValueError."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ValueError(f"a time has {TEXT_CHARACTERS_MAX} characters at most")
    time_ms = int(_typed(parse_time_ms, text))
    if not 0 <= time_ms <= INT64_MAX:
        raise ValueError(f"{text!r} is no time that a message can be due at")
    return time_ms


def read_start(text: str) -> Start:
    """Return the place of ``earliest``, ``latest`` or a time. Raises ValueError."""
    if len(text) > TEXT_CHARACTERS_MAX:
        raise ValueError(f"a time has {TEXT_CHARACTERS_MAX} characters at most")
    start: Start = _typed(parse_start, text)
    return start


def read_delays(text: str) -> tuple[int, ...]:
    """Return the milliseconds of ``1s,5s,10s``. Raises ValueError."""
    return tuple(map(read_duration, text.split(",")))


def show_delays(delays_ms: Sequence[int]) -> str:
    """Return delays as they would be filled in."""
    return ",".join(map(duration_text, delays_ms))


def read_choice(text: str) -> Misfire:
    """Return a policy for misfires. Raises ValueError."""
    return Misfire(text)


def _typed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except typer.BadParameter as error:
        raise ValueError(error.message) from None


def _policy_field(name: str, title: str, read: Callable[[str], Any], hint: str) -> Field:
    return Field(name, title, read, lambda value: texts_of({name: value})[name], hint)  # type: ignore[misc]


def _number(value: int) -> str:
    return f"{value:,}"


_DURATION: Final = (read_duration, duration_text)
_NUMBER: Final = (read_number, _number)

TOPIC_FIELDS: Final = (
    Field(
        "retention_ms",
        "Retention",
        *_DURATION,
        "how long released messages are kept at least; 0s: the cluster's",
    ),
    Field("retention_bytes", "Retention in bytes", *_NUMBER, "kept for the retention at most; 0: no bound"),
    Field(
        "retention_max_ms",
        "Hard retention",
        *_DURATION,
        "then gone even for slow groups; 0s: never",
    ),
    Field("pending_max", "Pending at most", *_NUMBER, "more are refused; 0: no bound"),
    Field("body_bytes_max", "Largest body", *_NUMBER, "bytes; 0: the nodes' limit"),
    Field("release_per_s_max", "Release rate", *_NUMBER, "messages a second, the rest waits; 0: no bound"),
    Field("misfire", "Misfire policy", read_choice, str, "for messages released too late", tuple(Misfire)),
    Field("misfire_after_ms", "Misfired after", *_DURATION, "0s: never"),
    Field("catch_up_per_s_max", "Catch-up rate", *_NUMBER, "misfired messages a second, for catch-up"),
)
POLICY_FIELDS: Final = (
    _policy_field("attempts_max", "Attempts", read_number, "deliveries before a message is a dead letter"),
    _policy_field(
        "back_off",
        "Back-off",
        lambda text: _typed(parse_back_off, text),
        "5s each time; 1s,5s,1m in turn; 1s..1h doubling",
    ),
    _policy_field("lease_ms", "Lease", read_duration, "how long a message stays in hand"),
    _policy_field("dead_letter_topic", "Dead-letter topic", str, "dlq.NAME, default, or none"),
    _policy_field(
        "dead_letter_retention_ms", "Dead letters are kept", read_duration, "where their topic does not say"
    ),
    _policy_field("delivery_per_s_max", "Delivery rate", read_number, "messages a second; 0: no bound"),
    _policy_field(
        "delay_ms", "Delay", read_duration, "how much later than it is due a group gets each message"
    ),
)
CLUSTER_FIELDS: Final = (
    *POLICY_FIELDS,
    Field("retention_ms", "Retention", *_DURATION, "how long released messages are kept at least"),
    Field(
        "group_expiry_ms",
        "Group expiry",
        *_DURATION,
        "unused groups that consumers made are deleted; 0s: never",
    ),
    Field("temporary_group_ms", "Temporary groups", *_DURATION, "how long one waits for its consumer"),
    Field(
        "idempotency_window_ms",
        "Idempotency window",
        *_DURATION,
        "how long behind a message's release its idempotency key counts",
    ),
    Field("delay_levels_ms", "Delay levels", read_delays, show_delays, "what levels 1, 2, … mean: 1s,5s,10s"),
    Field(
        "durability",
        "Durability",
        Durability,
        str,
        "sync: answers wait for a majority's disks; async: for its writes",
        tuple(Durability),
    ),
    Field(
        "flush_ms",
        "Flush within",
        *_DURATION,
        "with async: what a majority's loss of power may take",
    ),
)


def read(fields: Sequence[Field], form: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of the fields that are filled in. Raises Misread."""
    found, faults = {}, {}
    for field in fields:
        if text := form.get(field.name, "").strip():
            try:
                found[field.name] = field.read(text)
            except ValueError as error:
                faults[field.name] = str(error)
    if faults:
        raise Misread(faults)
    return found


def texts(fields: Sequence[Field], values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values as they would be filled in."""
    return {field.name: field.show(values[field.name]) for field in fields if field.name in values}


def filled_in(
    fields: Sequence[Field], own: Mapping[str, Any], counts: Mapping[str, Any], typed: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return what the fields hold, and what counts where they are empty, if that is not their own."""
    filled = texts(fields, own)
    rest = {name: text for name, text in texts(fields, counts).items() if name not in filled}
    return filled | dict(typed), rest


def fingerprint(values: Mapping[str, Any]) -> str:
    """Return a hash of settings, by which a change of them by somebody else is noticed."""
    return hashlib.sha256(repr(sorted(values.items())).encode()).hexdigest()[:16]


def changes(fields: Sequence[Field], before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each field that changes; one that is missing ``after`` is set no more."""
    found = []
    for field in fields:
        old, new = before.get(field.name), after.get(field.name)
        if old == new:
            continue
        shown = "not set" if old is None else field.show(old)
        then = "is set no more" if new is None else f"becomes {field.show(new)}"
        found.append(f"{field.title}, now {shown}, {then}.")
    return found
