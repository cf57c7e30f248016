"""The page *Message*: one by its id, its body, and what can be done with it."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from tarry.client.cli.times import time_text
from tarry.client.errors import TarryError
from tarry.client.found import FoundMessage
from tarry.client.queries.life import MessageLife
from tarry.client.results import CancelOutcome, ChangeOutcome, MessageState, StoredMessage
from tarry.console.forms import read_duration, read_time
from tarry.console.guard import form_of
from tarry.console.rendering import access_of, client_of, done, render, review, rights_of
from tarry.console.views import life
from tarry.console.views.body import FORMS, SHOWN_BYTES_MAX, body_text, form_of_body
from tarry.console.views.cells import path

HISTORY_MS: Final = 10_000
"""For each node to look through its ledger; what it has told by then is shown."""
LOOKS_MAX: Final = 5
"""Pages of messages with an idempotency key that the cluster is asked for."""
OUTCOMES: Final = {
    CancelOutcome.CANCELLED: "No consumer gets it any more.",
    CancelOutcome.ALREADY_CANCELLED: "It was cancelled before.",
    CancelOutcome.ALREADY_DELIVERED: "It was not cancelled: a consumer has it, or has had it.",
    CancelOutcome.ALREADY_DONE: "It was not cancelled: every group is done with it.",
    CancelOutcome.ALREADY_RELEASED: "It was not cancelled: it was due, and may have been delivered.",
    CancelOutcome.NOT_FOUND: "There is no such message.",
    CancelOutcome.UNSPECIFIED: "It was not cancelled; the cluster is of a version that says more of it.",
}
CHANGES: Final = {
    ChangeOutcome.CHANGED: "Its id stays valid.",
    ChangeOutcome.ALREADY_SO: "It was due then already.",
    ChangeOutcome.DUE_DIFFERS: "It was not rescheduled: it was due at another time by then.",
    ChangeOutcome.ALREADY_RELEASED: "It was not rescheduled: it was due, and may have been delivered.",
    ChangeOutcome.ALREADY_CANCELLED: "It was not rescheduled: it was cancelled.",
    ChangeOutcome.NOT_FOUND: "There is no such message; retries are for tarry reschedule --group.",
    ChangeOutcome.UNSPECIFIED: "It was not rescheduled; the cluster is of a version that says more of it.",
}


async def _search(request: Request) -> Response:
    look = await access_of(request).watch.look()
    if asked := request.query_params.get("id", "").strip():
        return RedirectResponse(path("message", asked), 303)
    topic, key = (request.query_params.get(name, "") for name in ("topic", "idempotency_key"))
    found: list[FoundMessage] | None = None
    if topic and key:
        found = await _found(request, topic, key)
        if len(found) == 1:
            return RedirectResponse(path("message", found[0].id), 303)
    return render(request, "search.html", look=look, topic=topic, key=key, found=found)


async def _found(request: Request, topic: str, key: str) -> list[FoundMessage]:
    """Return the messages with an idempotency key; of very many only the first."""
    found, begin, query = list[FoundMessage](), "", client_of(request).query()
    for _ in range(LOOKS_MAX):
        page = await query.find(topic, idempotency_key=key, begin=begin)
        found += page.messages
        if not (begin := page.next):
            break
    return found


async def _message(request: Request) -> Response:
    look = await access_of(request).watch.look()
    message = await access_of(request).producer.get(request.path_params["id"])
    rights = rights_of(look)
    readable = rights.may_consume(message.topic)
    form = form_of_body(message.body, request.query_params.get("as", "")) if readable else ""
    told = await _life(request, message.id)
    return render(
        request,
        "message.html",
        look=look,
        message=message,
        readable=readable,
        groups=None if told is None else list(map(life.group_cells, told.groups)),
        group_columns=life.GROUP_COLUMNS,
        form=form,
        forms=FORMS,
        body=body_text(message.body, form) if readable else "",
        cut=len(message.body) > SHOWN_BYTES_MAX,
        now_ms=look.best.now_ms if look.best is not None else 0,
        pending=message.state is MessageState.PENDING,
        may_cancel=rights.may_produce(message.topic) and message.state is not MessageState.CANCELLED,
        may_send=rights.may_produce(message.topic),
    )


async def _life(request: Request, message_id: str) -> MessageLife | None:
    """Return what the message is to each group; None where that cannot be told now, as by older nodes."""
    try:
        return await client_of(request).query().life(message_id)
    except TarryError:
        return None


async def _history(request: Request) -> Response:
    """Show what all nodes' ledgers say, on a page of its own: each search starts a process on a node."""
    look, message_id = await access_of(request).watch.look(), request.path_params["id"]
    told = await client_of(request).query().history(message_id, timeout_ms=HISTORY_MS)
    return render(
        request,
        "history.html",
        look=look,
        message_id=message_id,
        columns=life.ROW_COLUMNS,
        rows=list(map(life.row_cells, told.rows)),
        doubts=[f"{node.node or node.address}: {text}" for node in told.nodes for text in node.doubts()],
    )


async def _cancel(request: Request) -> Response:
    form, message_id = await form_of(request), request.path_params["id"]
    producer, back = access_of(request).producer, path("message", message_id)
    others = bool(form.get("remaining_groups"))
    if not form.get("confirmed"):
        message = await producer.get(message_id)
        sentences = [_told(message), "One message is cancelled: no consumer gets it any more."]
        if message.state is MessageState.RELEASED:
            sentences[1] = "One message is cancelled, unless a consumer has it or has had it."
        if others:
            sentences[1] = "One message is cancelled for the groups that have not had it."
        return review(
            request, "Cancel a message", sentences, form, button="Cancel it", back=back, danger=True
        )
    outcome = (await producer.cancel_many([message_id], remaining_groups=others))[0]
    title = "Cancelled" if outcome is CancelOutcome.CANCELLED else "Not cancelled"
    return done(request, title, [OUTCOMES[outcome]], back)


async def _reschedule(request: Request) -> Response:
    """Have a pending message due at another time, if it is due then as its page has shown."""
    form, message_id = await form_of(request), request.path_params["id"]
    producer, back = access_of(request).producer, path("message", message_id)
    try:
        due_ms, shown_ms = (read_time(form.get(name, "").strip()) for name in ("due", "if_due"))
    except ValueError as error:
        return done(request, "Not done", [str(error)], back, status=400)
    if not form.get("confirmed"):
        sentences = [
            _told(await producer.get(message_id)),
            f"It is due {time_text(due_ms)} instead of {time_text(shown_ms)}; if that is past, at once.",
        ]
        return review(request, "Reschedule a message", sentences, form, button="Reschedule it", back=back)
    change = await producer.reschedule(message_id, due_ms=due_ms, if_due_ms=shown_ms)
    is_so = change.outcome in (ChangeOutcome.CHANGED, ChangeOutcome.ALREADY_SO)
    return done(request, "Rescheduled" if is_so else "Not rescheduled", [CHANGES[change.outcome]], back)


async def _send_again(request: Request) -> Response:
    """Schedule a message with the same content, as another one: without its idempotency key."""
    form, message_id = await form_of(request), request.path_params["id"]
    producer, back = access_of(request).producer, path("message", message_id)
    try:
        delay_ms = read_duration(form.get("delay", "").strip() or "0s")
    except ValueError as error:
        return done(request, "Not done", [str(error)], back, status=400)
    message = await producer.get(message_id)
    if not form.get("confirmed"):
        sentences = [
            _told(message),
            f"Another message with its content is scheduled to {message.topic}, due in "
            f"{form.get('delay', '').strip() or '0s'}; all groups get it.",
        ]
        return review(request, "Send again", sentences, form, button="Send it", back=back)
    made = await producer.schedule(
        message.topic,
        message.body,
        delay_ms=delay_ms,
        tags=message.tags,
        keys=message.keys,
        properties=message.properties,
        ordering_key=message.ordering_key,
    )
    return RedirectResponse(path("message", made.id), 303)  # so that loading it again sends no other


def _told(message: StoredMessage) -> str:
    return f"Message {message.id} of {message.topic} is {message.state}."


ROUTES: Final = (
    Route("/message", _search),
    Route("/message/{id}", _message),
    Route("/message/{id}/history", _history),
    Route("/message/{id}/cancel", _cancel, methods=["POST"]),
    Route("/message/{id}/reschedule", _reschedule, methods=["POST"]),
    Route("/message/{id}/send", _send_again, methods=["POST"]),
)
