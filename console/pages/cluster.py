"""The page *Cluster*: members, leadership, the upgrade, and settings for all topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tarry.client.operators.cluster_operator import Operator
from tarry.client.operators.cluster_settings import ClusterOptions
from tarry.client.operators.upgrade_status import upgrade_status
from tarry.console.forms import CLUSTER_FIELDS, Misread, changes, filled_in, fingerprint, read
from tarry.console.guard import form_of
from tarry.console.jobs import Job, Work
from tarry.console.pages.jobs import start
from tarry.console.rendering import (
    BEFORE,
    access_of,
    client_of,
    confirmed,
    done,
    live,
    operators_look,
    render,
    review,
    rights_of,
)
from tarry.console.views.cluster import COLUMNS, LED_COLUMNS, led_spans, node_rows
from tarry.console.views.table import table_of
from tarry.console.watch import Look

BACK: Final = "/cluster"
NODE_CHARACTERS_MAX: Final = 100
ADDRESS_CHARACTERS_MAX: Final = 300
"""As the form has them: a job keeps its title."""
ADD_MS: Final = 600_000
"""In which a new member has to have learnt what there is."""


async def values_of(request: Request, look: Look) -> Mapping[str, Any]:
    """Return what the page shows of a look."""
    led = led_spans(look)
    return {
        "nodes": table_of("nodes", "Nodes", COLUMNS, node_rows(look), request.query_params, "node"),
        "leaders": table_of(
            "leaders",
            "Leaders seen while a page was open",
            LED_COLUMNS,
            [led._asdict() for led in look.leaders],
            request.query_params,
            "-at_ms",
            "led-",
        ),
        "led": led,
        "led_names": sorted(
            {("none" if one.color < 0 else str(one.color), one.leader or "nobody") for one in led}
        ),
        "upgrade": upgrade_status(look.answers),
    }


async def _cluster(request: Request) -> Response:
    return await _page(request, {}, {})


async def _page(request: Request, typed: Mapping[str, str], faults: Mapping[str, str]) -> Response:
    look = await access_of(request).watch.look()
    filled: dict[str, str] = {}
    counts: dict[str, str] = {}
    if rights_of(look).operate:
        found = await client_of(request).operator().describe_cluster()
        filled, counts = filled_in(CLUSTER_FIELDS, found.own, found.settings, typed)
    return render(
        request,
        "cluster.html",
        look=look,
        fields=CLUSTER_FIELDS,
        filled=filled,
        counts=counts,
        faults=faults,
        members=[member.node for member in look.best.members] if look.best is not None else [],
        leader=look.best.leader if look.best is not None else "",
        page=BACK,
        status=400 if faults else 200,
        **await values_of(request, look),
    )


async def _transfer(request: Request) -> Response:
    form = await form_of(request)
    target = form.get("target", "")
    if not form.get("confirmed"):
        look = await access_of(request).watch.look()
        leader = look.best.leader if look.best is not None else ""
        sentences = [
            f"{leader or 'The leader'} hands leadership to {target or 'the follower that has most'}.",
            "Nothing is lost or repeated; for some 100 ms calls wait.",
        ]
        return review(request, "Transfer leadership", sentences, form, button="Transfer it", back=BACK)
    made = await client_of(request).operator().transfer(target)
    text = f"{made.leader} leads, in term {made.term:,}; calls waited for {made.pause_ms:,} ms."
    return done(request, "Transferred", [text], BACK)


async def _finish(request: Request) -> Response:
    form = await form_of(request)
    if not form.get("confirmed"):
        look = await access_of(request).watch.look()
        found = upgrade_status(look.answers)
        now = f", now {found.level}, becomes {found.next_level}" if found is not None else " is raised"
        sentences = [f"The cluster's level{now}.", "No member can go back to an earlier version then."]
        return review(
            request, "Finish the upgrade", sentences, form, button="Raise it", back=BACK, danger=True
        )
    level = await client_of(request).operator().finish_upgrade()
    return done(request, "Upgrade finished", [f"The cluster is at level {level}."], BACK)


async def _add(request: Request) -> Response:
    form = await form_of(request)
    node, address = form.get("node", "").strip(), form.get("address", "").strip()
    if not 0 < len(node) <= NODE_CHARACTERS_MAX or not 0 < len(address) <= ADDRESS_CHARACTERS_MAX:
        text = f"name the node, with {NODE_CHARACTERS_MAX} characters at most, and its address, host:port"
        raise HTTPException(400, text)
    access, look = access_of(request), await operators_look(request)
    if not form.get("confirmed"):
        there = [member.node for member in look.best.members] if look.best is not None else []
        count = len({*there, node})
        sentences = [
            f"{node} at {address} learns all there is, and then counts.",
            f"There are {count} members then, of which {count // 2 + 1} must run.",
            "It has to run already, started with join = true and the other nodes as its members.",
            *([f"{node} is a member already."] if node in there else []),
        ]
        return review(request, f"Add {node}", sentences, form, button="Add it", back=BACK)
    work = _adding(access.client.operator(), node, address)
    return start(access, f"Add {node}", BACK, work, can_stop=False)


def _adding(operator: Operator, node: str, address: str) -> Work:
    async def work(job: Job) -> bool:
        job.tell(0, 0, [f"{node} learns what there is; for this it has {ADD_MS // 60_000} minutes."])
        members = await operator.add_member(node, address, deadline_ms=ADD_MS)
        job.tell(1, 1, [f"Members are {', '.join(members)}."])
        return True

    return work


async def _remove(request: Request) -> Response:
    form = await form_of(request)
    node = form.get("node", "")
    if not form.get("confirmed"):
        look = await access_of(request).watch.look()
        left = len(look.best.members) - 1 if look.best is not None else 0
        sentences = [
            f"{node} is a member no more; {left} members are left, of which {left // 2 + 1} must run.",
            "Stop its process afterwards.",
        ]
        return review(request, f"Remove {node}", sentences, form, button="Remove it", back=BACK, danger=True)
    members = await client_of(request).operator().remove_member(node)
    return done(request, "Removed", [f"Members are {', '.join(members)}."], BACK)


async def _change(request: Request) -> Response:
    """Change the cluster's settings; a field that is empty is set no more."""
    form, operator = await form_of(request), client_of(request).operator()
    own: Mapping[str, Any] = (await operator.describe_cluster()).own
    try:
        given = read(CLUSTER_FIELDS, form)
    except Misread as error:
        return await _page(request, form, error.faults)
    sentences = changes(CLUSTER_FIELDS, own, given)
    if not sentences:
        return done(request, "Nothing changes", ["The cluster's settings are as they were."], BACK)
    if not confirmed(form, own):
        sentences.append("They count at once, for all topics and groups that say nothing else.")
        form |= {BEFORE: fingerprint(own)}
        return review(request, "Change the cluster", sentences, form, button="Change it", back=BACK)
    await operator.set_cluster(unset=own.keys() - given.keys(), **cast(ClusterOptions, given))
    return done(request, "Settings changed", sentences, BACK)


ROUTES: Final = (
    Route("/cluster", _cluster),
    Route("/live/cluster", live("cluster_live.html", values_of)),
    Route("/cluster/transfer", _transfer, methods=["POST"]),
    Route("/cluster/upgrade", _finish, methods=["POST"]),
    Route("/cluster/add", _add, methods=["POST"]),
    Route("/cluster/remove", _remove, methods=["POST"]),
    Route("/cluster/settings", _change, methods=["POST"]),
)
