// Sends a message that is due in three seconds, and receives it. Usage: node delayed.cjs [HOST:PORT]
const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

async function main() {
  const common = { endpoints: process.argv[2] ?? '127.0.0.1:8081', namespace: '' };
  const producer = new Producer({ ...common, topics: ['reminders'] });
  await producer.startup();
  const consumer = new SimpleConsumer({
    ...common, consumerGroup: 'examples', subscriptions: new Map([['reminders', '*']]), awaitDuration: 20_000,
  });
  await consumer.startup();
  const due = Date.now() + 3_000;
  const { messageId } = await producer.send({
    topic: 'reminders', body: Buffer.from('pay order 7'), deliveryTimestamp: new Date(due),
  });
  console.log('sent', messageId);
  for (let found = false; !found;) {
    for (const view of await consumer.receive(16, 30_000)) {
      console.log('received', view.messageId, view.body.toString(), Date.now() - due, 'ms after it was due');
      found ||= view.messageId === messageId;
      await consumer.ack(view);
    }
  }
  await consumer.shutdown();
  await producer.shutdown();
}

main().then(() => process.exit(0));
