"""What gateway/README.md and DESIGN.md say against the code."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import BaseModel

from tarry.client.errors import Closed, OutcomeUnknown, Overloaded, Refused, TooLarge, Unavailable
from tarry.gateway.http.config import Limits, load
from tarry.gateway.http.consuming import QUEUES_MAX
from tarry.gateway.http.errors import STATUS_OF_OWN, GatewayReason, status_of_reason
from tarry.gateway.http.operations import OPERATIONS
from tarry.gateway.http.strict_json import DEPTH_MAX
from tarry.gateway.push.post import Delivery
from tarry.gateway.push.settings import Push
from tarry.gateway.push.signature import AGE_S_MAX, sign
from tarry.gateway.rocketmq import config as rocketmq_config
from tarry.gateway.rocketmq.service import UNARY
from tarry.proto.reasons import Reason

FOLDER = Path(__file__).resolve().parents[2] / "gateway"
README = (FOLDER / "README.md").read_text()
DESIGN = (FOLDER / "DESIGN.md").read_text()


ROCKETMQ = (FOLDER / "ROCKETMQ.md").read_text()


def rows(head: str, page: str = README) -> list[list[str]]:
    """Return the rows of a page's table with this head."""
    table = page.partition(head)[2].partition("\n\n")[0]
    assert table, head
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def test_the_table_of_operations_has_each() -> None:
    told = [(name, request) for name, request, _ in rows("| operation | request | what it does |")]
    assert told == [(f"`{each.name}`", f"`{each.method} {each.path}`") for each in OPERATIONS]


@pytest.mark.parametrize(
    ("head", "model", "page"),
    [
        ("| key of `[limits]` | default | meaning |", Limits, README),
        ("| key of `[[push]]` | default | meaning |", Push, README),
        ("| key of `[limits]` | default | meaning |", rocketmq_config.Limits, ROCKETMQ),
        ("| key of `[[key]]` | default | meaning |", rocketmq_config.Key, ROCKETMQ),
    ],
)
def test_the_tables_of_keys_have_each_with_its_default(head: str, model: type[BaseModel], page: str) -> None:
    def shown(value: Any) -> str:
        return "none" if value is None else f"`{json.dumps(value)}`"

    assert rows(head, page) == [
        [f"`{name}`", "needed" if field.is_required() else shown(field.default), str(field.description)]
        for name, field in model.model_fields.items()
    ]


def test_the_page_of_rocketmq_has_each_method_and_each_key() -> None:
    told = {name for names, _ in rows("| method | what it does |", ROCKETMQ) for name in names.split(", ")}
    assert told == {f"`{name}`" for name in (*UNARY, "ReceiveMessage", "Telemetry")}
    fields = rocketmq_config.Config.model_fields
    assert rows("| key | default | meaning |", ROCKETMQ) == [
        [f"`{name}`", f"`{json.dumps(fields[name].default)}`", str(fields[name].description)]
        for name in fields
        if name not in ("limits", "key")
    ]


def test_the_file_of_the_page_of_rocketmq_is_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", ROCKETMQ, re.DOTALL)
    file = tmp_path / "rocketmq.toml"
    file.write_text(example)
    (key,) = rocketmq_config.load(file).key
    assert key.access_key == "shop"


def test_the_table_of_statuses_has_each_reason_that_it_does_not_leave_to_400() -> None:
    told = {
        reason: int(status)
        for status, text in rows("| status | reasons |")
        for reason in re.findall(r"`([A-Z_]+)`", text)
    }
    cluster = {str(reason): status_of_reason(reason) for reason in Reason}
    own = {str(reason): STATUS_OF_OWN[reason][0] for reason in GatewayReason}
    client = {
        name: status_of_reason(name, family)
        for family, names in {
            TooLarge: ["MESSAGE_TOO_LARGE"],
            Overloaded: ["PRODUCER_FULL"],
            Refused: ["UNIMPLEMENTED"],
            Unavailable: ["UNREACHABLE"],
            Closed: ["CLOSED"],
            OutcomeUnknown: ["DEADLINE_EXCEEDED", "UNAVAILABLE"],
        }.items()
        for name in names
    }
    expected = {reason: status for reason, status in cluster.items() if status != 400} | client | own
    assert told == expected


async def test_the_table_of_metrics_has_each(http: httpx.AsyncClient) -> None:
    there = re.findall(r"^# TYPE (\w+) ", (await http.get("/metrics")).text, re.MULTILINE)
    assert [name.strip("`") for name, *_ in rows("| metric | labels | meaning |")] == there


def test_the_example_of_a_push_is_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    file = tmp_path / "gateway.toml"
    file.write_text(example)
    (push,) = load(file).push
    assert push.url == "https://billing.example/hook"


def test_the_example_of_a_receiver_knows_what_is_signed() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    is_ours: Callable[..., bool] = names["is_ours"]
    now_s = int(time.time())
    signature = sign(b"body", "id", now_s, ["the secret", "the next one"])
    assert is_ours(signature, "id", b"body", "the secret")
    assert is_ours(signature, "id", b"body", "the next one")
    assert not is_ours(signature, "id", b"body", "another")
    assert not is_ours(signature, "other", b"body", "the secret")
    assert not is_ours(
        sign(b"body", "id", now_s - AGE_S_MAX - 60, ["the secret"]), "id", b"body", "the secret"
    )
    for hostile in ("nonsense", f"t={now_s},v1=é", f"t={'9' * 5_000},v1=0", f"t={now_s}", "t=²,v1=0"):
        assert not is_ours(hostile, "id", b"body", "the secret")


def test_the_headers_and_bounds_that_the_readme_names_are_those_of_the_code() -> None:
    headers = Delivery("i", "t", "g", 1, 1, True, {}, b"", 1, 1, 1).headers("x")
    for name in headers.keys() - {"User-Agent"}:
        assert f"`{name}`" in README
    assert f"nested more than {DEPTH_MAX} deep" in README
    assert f"One request settles messages of {QUEUES_MAX} queues" in README


def test_the_design_has_every_module() -> None:
    table = DESIGN.partition("| module | purpose |")[2].partition("\n\n")[0]
    named = set(
        re.findall(r"`([\w/]+)`(?=[,| ]*(?:`|\|))", "\n".join(line[:80] for line in table.splitlines()))
    )
    there = {
        path.relative_to(FOLDER).with_suffix("").as_posix()
        for path in FOLDER.rglob("*.py")
        if "_pb2" not in path.name
    }
    assert there <= named
