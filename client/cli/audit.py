"""``tarry audit``: which operators' calls the nodes have recorded."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Final

import typer

from tarry.client.aio import Client
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output, cell, out, print_json, table_of, words
from tarry.client.cli.times import time_option, time_text
from tarry.client.errors import Unavailable
from tarry.client.operators.audit_log import AuditLine

COLUMNS: Final = ("time", "node", "stage", "method", "token", "address", "arguments", "result")
NO_ANSWER: Final = "NODES_SILENT"
PAGES_MAX: Final = 1_000
"""Asked for until there are as many lines as wanted: what is rare in long logs takes many."""


async def audit(
    client: Client,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=100_000, help="Lines at most.")] = 50,
    token_name: Annotated[str, typer.Option(help="Only calls with the token of this name.")] = "",
    method: Annotated[str, typer.Option(help="Only calls of this name, such as DeleteTopic.")] = "",
    from_: Annotated[int | None, time_option("--from", help="Only lines of then or later.")] = None,
    until: Annotated[int | None, time_option("--until", help="Only lines before.")] = None,
    *,
    cluster: OnCluster,
) -> None:
    """Show what the nodes' audit logs have of operators' calls, of all nodes, the newest first.

    It needs a token that may operate, and is recorded itself. A node that does not answer is named; the exit
    code is then 3, and the calls that it has done are missing.
    """
    operator, lines, to_ms = client.operator(), list[AuditLine](), until or 0
    with words().status("reading") as spinner:
        for _ in range(PAGES_MAX):
            trail = await operator.audit(
                from_ms=from_ or 0,
                to_ms=to_ms,
                token=token_name,
                method=method,
                lines_max=min(500, count - len(lines)),
                timeout_ms=cluster.deadline_ms,
            )
            lines += trail.lines
            if len(lines) >= count or not trail.older_to_ms or trail.older_to_ms == to_ms or trail.silent:
                break
            to_ms = trail.older_to_ms
            spinner.update(f"read back to {time_text(to_ms)}: {len(lines):,} lines")
    lines = lines[:count]
    if cluster.output is Output.JSON:
        print_json([asdict(line) for line in lines])
    else:
        out().print(table_of([_row(line) for line in lines], COLUMNS))
    for node in trail.without:
        words().print(f"{cell(node)} writes no audit log: set audit.file", style="yellow")
    if trail.unreadable:
        words().print(f"{trail.unreadable:,} lines cannot be read", style="yellow")
    if trail.silent:
        silent = ", ".join(f"{address} ({why})" for address, why in trail.silent.items())
        raise Unavailable(NO_ANSWER, f"lines of these nodes are missing: {silent}")


def _row(line: AuditLine) -> dict[str, object]:
    result = f"{line.result}: {line.text}" if line.text else line.result
    return {
        "time": time_text(line.at_ms),
        "node": line.node,
        "stage": line.stage,
        "method": line.method,
        "token": line.token or ", ".join(line.certificate),
        "address": f"{line.address} via {line.via}" if line.via else line.address,
        "arguments": json.dumps(line.arguments, ensure_ascii=False) if line.arguments else "",
        "result": f"{result} ({line.left_out:,} more)" if line.left_out else result,
    }
