"""Routes: where a topic's messages are sent to and received from. That is here, through any gateway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.protocol.definition_pb2 import AddressScheme, Permission

ANY_QUEUE: Final = -1
"""Id of the queue of an assignment that is of all queues of its broker."""


def endpoints_of(addresses: Sequence[tuple[str, int]]) -> definition.Endpoints:
    """Return addresses as a client dials them: several where they are of IPv4, else the first alone."""
    hosts = [host for host, _ in addresses]
    scheme = AddressScheme.DOMAIN_NAME
    if all(host.replace(".", "").isdecimal() for host in hosts):
        scheme = AddressScheme.IPv4
    elif ":" in hosts[0]:
        scheme = AddressScheme.IPv6
    if scheme != AddressScheme.IPv4:
        addresses = addresses[:1]
    return definition.Endpoints(
        scheme=scheme, addresses=[definition.Address(host=host, port=port) for host, port in addresses]
    )


class Routes:
    """The brokers that clients are told of: those that are configured, or the address that they dialled."""

    def __init__(self, advertised: Sequence[tuple[str, int]], listening: tuple[str, int]) -> None:
        self._advertised, self._listening = advertised, listening

    def queues(
        self, topic: definition.Resource, asked: definition.Endpoints, types: Sequence[int]
    ) -> list[definition.MessageQueue]:
        """Return a queue of the topic for each broker."""
        places = [endpoints_of([address]) for address in self._advertised]
        if not places:
            places = [asked if asked.addresses else endpoints_of([self._listening])]
        return [
            definition.MessageQueue(
                topic=topic,
                id=0,
                permission=Permission.READ_WRITE,
                broker=definition.Broker(name=f"tarry-{number}", id=0, endpoints=place),
                accept_message_types=types,  # type: ignore[arg-type]
            )
            for number, place in enumerate(places)
        ]

    def assignments(
        self, topic: definition.Resource, asked: definition.Endpoints, types: Sequence[int], fifo: bool
    ) -> list[definition.Assignment]:
        """Return what a push consumer polls: of a group in order each queue, of others each broker."""
        queues = self.queues(topic, asked, types)
        for queue in queues:
            queue.id = 0 if fifo else ANY_QUEUE
        return [definition.Assignment(message_queue=queue) for queue in queues]
