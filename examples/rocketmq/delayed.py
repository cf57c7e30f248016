"""Send a message that is due in three seconds, and receive it. Usage: python delayed.py [HOST:PORT]"""

import sys
import time

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

configuration = ClientConfiguration((sys.argv[1:] or ["127.0.0.1:8081"])[0], Credentials())
producer = Producer(configuration, ("reminders",))
producer.startup()
consumer = SimpleConsumer(configuration, "examples", {"reminders": FilterExpression()}, await_duration=20)
consumer.startup()
message = Message()
message.topic, message.body = "reminders", b"pay order 7"
message.delivery_timestamp = due_s = int(time.time()) + 3
print("sent", producer.send(message).message_id, flush=True)
received = []
while message.message_id not in received:
    for got in consumer.receive(16, 30) or []:
        late_ms = round((time.time() - due_s) * 1_000)
        print("received", got.message_id, got.body.decode(), late_ms, "ms after it was due", flush=True)
        received.append(got.message_id)
        consumer.ack(got)
consumer.shutdown()
producer.shutdown()
