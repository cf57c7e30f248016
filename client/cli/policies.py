"""A group's policy on the command line: its options, and how it is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final, cast

import typer

from tarry.client.cli.times import duration_option, duration_text, parse_duration_ms
from tarry.client.operators.group_policy import FIELDS, BackOff, Exponential, PolicyOptions

_GROWING: Final = re.compile(r"(?P<first>[^.]\S*?)\.\.(?P<most>[^:]+)(:(?P<factor>\d+(\.\d+)?))?")
PANEL: Final = "For its groups, where they set nothing"
"""Of a topic's options."""

Unset = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="FIELD", help=f"Set it no more; one of {', '.join(FIELDS)}."),
]


def parse_back_off(text: str) -> BackOff:
    """Return the back-off of ``5s``, ``1s,5s,30s``, ``1s..1h`` (doubling) or ``1s..1h:1.5``.

    Raises typer.BadParameter for anything else.
    """
    if growing := _GROWING.fullmatch(text):
        first, most, factor = growing["first"], growing["most"], growing["factor"]
        return Exponential(parse_duration_ms(first), parse_duration_ms(most), float(factor or 2))
    waits = [parse_duration_ms(part) for part in text.split(",")]
    return waits[0] if len(waits) == 1 else tuple(waits)


def _options(panel: str | None) -> dict[str, Any]:
    return {
        "attempts_max": typer.Option(
            "--attempts", min=1, rich_help_panel=panel, help="Deliveries before a message is a dead letter."
        ),
        "back_off": typer.Option(
            "--back-off",
            parser=parse_back_off,
            metavar="WAITS",
            rich_help_panel=panel,
            help="Until the next delivery: 5s each time, 1s,5s,1m in turn, or 1s..1h, doubling (1s..1h:1.5).",
        ),
        "lease_ms": duration_option(
            "--lease",
            rich_help_panel=panel,
            help="How long a message stays in hand, if nothing else is asked.",
        ),
        "dead_letter_topic": typer.Option(
            "--dead-letter-topic",
            metavar="TOPIC",
            rich_help_panel=panel,
            help="Where dead letters go: dlq.NAME; default: dlq.GROUP.TOPIC; none: counted, and gone.",
        ),
        "dead_letter_retention_ms": duration_option(
            "--dead-letter-retention",
            rich_help_panel=panel,
            help="How long dead letters are kept, where their topic does not say.",
        ),
        "delivery_per_s_max": typer.Option(
            "--delivery-rate",
            min=0,
            rich_help_panel=panel,
            help="Messages a second for all consumers of a group together; 0: no bound.",
        ),
        "delay_ms": duration_option(
            "--delay",
            rich_help_panel=panel,
            help="How much later than it is due a group gets each message; 0s: at once.",
        ),
    }


_OWN: Final = _options(None)
_OF_TOPIC: Final = _options(PANEL)


class _Flags:
    __slots__ = ()

    def given(self) -> PolicyOptions:
        """Return the fields that were given."""
        fields = {name: getattr(self, name) for name in FIELDS}
        return cast(PolicyOptions, {name: value for name, value in fields.items() if value is not None})


@dataclass(frozen=True, slots=True)
class PolicyFlags(_Flags):
    """The options for a group's policy; None: not given."""

    attempts_max: Annotated[int | None, _OWN["attempts_max"]] = None
    back_off: Annotated[Any, _OWN["back_off"]] = None
    lease_ms: Annotated[int | None, _OWN["lease_ms"]] = None
    dead_letter_topic: Annotated[str | None, _OWN["dead_letter_topic"]] = None
    dead_letter_retention_ms: Annotated[int | None, _OWN["dead_letter_retention_ms"]] = None
    delivery_per_s_max: Annotated[int | None, _OWN["delivery_per_s_max"]] = None
    delay_ms: Annotated[int | None, _OWN["delay_ms"]] = None


@dataclass(frozen=True, slots=True)
class TopicPolicyFlags(_Flags):
    """The same of a topic, for its groups."""

    attempts_max: Annotated[int | None, _OF_TOPIC["attempts_max"]] = None
    back_off: Annotated[Any, _OF_TOPIC["back_off"]] = None
    lease_ms: Annotated[int | None, _OF_TOPIC["lease_ms"]] = None
    dead_letter_topic: Annotated[str | None, _OF_TOPIC["dead_letter_topic"]] = None
    dead_letter_retention_ms: Annotated[int | None, _OF_TOPIC["dead_letter_retention_ms"]] = None
    delivery_per_s_max: Annotated[int | None, _OF_TOPIC["delivery_per_s_max"]] = None
    delay_ms: Annotated[int | None, _OF_TOPIC["delay_ms"]] = None


def json_of(policy: PolicyOptions) -> dict[str, object]:
    """Return a policy for programs: a growing back-off is an object, a table a list."""
    values: Mapping[str, Any] = policy
    return {
        name: asdict(value) if isinstance(value, Exponential) else value for name, value in values.items()
    }


def texts_of(policy: PolicyOptions) -> dict[str, str]:
    """Return each field for people, as it would be given."""
    values: Mapping[str, Any] = policy
    return {name: _text(name, value) for name, value in values.items()}


def _text(name: str, value: Any) -> str:
    match value:
        case Exponential():
            text = f"{duration_text(value.first_ms)}..{duration_text(value.max_ms)}"
            return text if value.factor == 2 else f"{text}:{value.factor:g}"
        case str():
            return value
        case tuple():
            return ",".join(map(duration_text, value))
        case _:
            return duration_text(value) if name == "back_off" or name.endswith("_ms") else f"{value:,}"
