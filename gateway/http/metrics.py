"""Metrics of the gateway in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from tarry.gateway.http.admission import Admission
from tarry.gateway.push.pushes import Pusher

Sample = tuple[dict[str, str], float]


class Requests:
    """Requests that were answered, by operation and status."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, int]] = Counter()

    def answered(self, scope: Any, status: int) -> None:
        """Count one."""
        operation = getattr(scope.get("endpoint"), "__name__", "none")  # of a route: there are few
        self.counts[operation, status] += 1


def text(requests: Requests, admission: Admission, tokens: int, pushers: Iterable[Pusher]) -> str:
    """Return all metrics."""
    used = {
        "calls": admission.calls.used,
        "polls": admission.polls.used,
        "streams": admission.streams.used,
        "body_bytes": admission.bodies.used,
    }
    pushes = list(pushers)
    families: list[tuple[str, str, str, Iterable[Sample]]] = [
        (
            "tarry_gateway_requests_total",
            "counter",
            "Requests answered, by operation and status.",
            [
                ({"operation": operation, "status": str(status)}, count)
                for (operation, status), count in sorted(requests.counts.items())
            ],
        ),
        (
            "tarry_gateway_in_use",
            "gauge",
            "What of the limits is in use.",
            [({"what": what}, count) for what, count in used.items()],
        ),
        ("tarry_gateway_tokens", "gauge", "Tokens with a client of the cluster.", [({}, tokens)]),
        (
            "tarry_gateway_push_posts_total",
            "counter",
            "Posts, by push, and whether the receiver took the message.",
            [
                ({"push": each.push.name, "outcome": outcome}, getattr(each, outcome))
                for each in pushes
                for outcome in ("taken", "failed")
            ],
        ),
        (
            "tarry_gateway_push_in_flight",
            "gauge",
            "Posts under way.",
            [({"push": each.push.name}, each.in_flight) for each in pushes],
        ),
    ]
    return "\n".join(_lines(families))


def _lines(families: Iterable[tuple[str, str, str, Iterable[Sample]]]) -> Iterator[str]:
    for name, kind, meaning, samples in families:
        yield f"# HELP {name} {meaning}"
        yield f"# TYPE {name} {kind}"
        for labels, value in samples:  # names of operations and pushes need no escapes
            shown = ",".join(f'{label}="{text}"' for label, text in labels.items())
            yield f"{name}{{{shown}}} {value}" if shown else f"{name} {value}"
    yield ""
