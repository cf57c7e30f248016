"""``tarry upgrade``: how far an upgrade of the nodes is, and its end."""

from __future__ import annotations

from dataclasses import asdict

import typer

from tarry.client.aio import Client
from tarry.client.cli.options import OnCluster, cluster_command
from tarry.client.cli.output import Output, print_fields, print_json, print_rows, words
from tarry.client.errors import Unavailable
from tarry.client.operators.upgrade_status import UpgradeStatus, upgrade_status

upgrade_app = typer.Typer(no_args_is_help=True, help="Upgrade the nodes of a running cluster, one at a time.")
COLUMNS = ("node", "address", "version", "level_max", "lacks")


@cluster_command(upgrade_app, "status")
async def status(client: Client, *, cluster: OnCluster) -> None:
    """Show the cluster's level, each member's version, and for whom the next level waits."""
    operator = client.operator()
    await operator.status()  # also learns the addresses of all members
    found = upgrade_status(await operator.status_of_all())
    if found is None:
        raise Unavailable("UNREACHABLE", "no node answers any more")
    if cluster.output is Output.JSON:
        print_json(asdict(found) | {"missing": found.missing})
        return
    print_rows([asdict(member) for member in found.members], COLUMNS, title="members")
    words().print(_told(found))


@cluster_command(upgrade_app, "finish")
async def finish(client: Client, *, cluster: OnCluster) -> None:
    """Raise the cluster's level, once all members can. None can go back to an earlier version then.

    Only needed where upgrade.finish is "manual": else the leader does so by itself.
    """
    print_fields({"level": await client.operator().finish_upgrade()}, cluster.output)


def _told(found: UpgradeStatus) -> str:
    if found.missing:
        return f"level {found.level}; level {found.next_level} needs {', '.join(sorted(found.missing))}"
    if found.next_level == found.level:
        return f"level {found.level}, and no member can apply a higher one: nothing is to be finished"
    how = "the leader raises it by itself" if found.finish == "auto" else "tarry upgrade finish raises it"
    return f"level {found.level}; every member can apply level {found.next_level}: {how}"
