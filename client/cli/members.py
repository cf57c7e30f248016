"""``tarry member``: nodes that come and go."""

from __future__ import annotations

from typing import Annotated

import typer

from tarry.client.aio import Client
from tarry.client.cli.options import EXIT_CODES, OnCluster, on_cluster
from tarry.client.cli.output import print_fields, words

member_app = typer.Typer(no_args_is_help=True, help="Add and remove nodes of a running cluster.")

Node = Annotated[str, typer.Argument(help="The node's name.")]


@member_app.command("add", epilog=EXIT_CODES)
@on_cluster(deadline_ms=60_000)
def add(
    node: Node,
    address: Annotated[str, typer.Argument(help="Its host:port.")],
    *,
    cluster: OnCluster,
) -> None:
    """Make a node a member. It runs already, with join = true and the other nodes as its members."""

    async def work(client: Client) -> None:
        words().print(f"{node} learns what there is; then it counts", style="dim")
        members = await client.operator().add_member(node, address, deadline_ms=cluster.deadline_ms)
        print_fields({"members": members}, cluster.output)

    cluster.run(work)


@member_app.command("remove", epilog=EXIT_CODES)
@on_cluster()
def remove(node: Node, *, cluster: OnCluster) -> None:
    """Let a member go; stop its process afterwards. If it leads, it hands leadership over first."""

    async def work(client: Client) -> None:
        print_fields({"members": await client.operator().remove_member(node)}, cluster.output)

    cluster.run(work)
