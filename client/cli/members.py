"""``tarry member``: addition and removal of nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from tarry.client.aio import Client
from tarry.client.cli.options import OnCluster, cluster_command
from tarry.client.cli.output import print_fields, words

member_app = typer.Typer(no_args_is_help=True, help="Add and remove nodes of a running cluster.")

Node = Annotated[str, typer.Argument(help="The node's name.")]


@cluster_command(member_app, "add", deadline_ms=60_000)
async def add(
    client: Client,
    node: Node,
    address: Annotated[str, typer.Argument(help="Its host:port.")],
    *,
    cluster: OnCluster,
) -> None:
    """Make a node a member. It runs already, with join = true and the other nodes as its members."""
    words().print(f"{node} learns what there is; then it counts", style="dim")
    members = await client.operator().add_member(node, address, deadline_ms=cluster.deadline_ms)
    print_fields({"members": members}, cluster.output)


@cluster_command(member_app, "remove")
async def remove(client: Client, node: Node, *, cluster: OnCluster) -> None:
    """Remove a member; stop its process afterwards. A leader transfers leadership first."""
    print_fields({"members": await client.operator().remove_member(node)}, cluster.output)
