// RocketMQ's own client for Node, as transactions.py is for Python. Usage: node transactions.cjs HOST:PORT TOPIC
const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');
const { TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const [endpoints, topic] = process.argv.slice(2);
const common = { endpoints, namespace: '', requestTimeout: 3000 };
const checked = {};

async function check(view) {
  const body = view.body.toString();
  checked[body] = (checked[body] ?? 0) + 1;
  if (body === 'unsure' && checked[body] === 1) return TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED;
  return body === 'undone' ? TransactionResolution.ROLLBACK : TransactionResolution.COMMIT;
}

async function main() {
  const producer = new Producer({ ...common, topics: [topic], checker: { check } });
  await producer.startup();
  const ids = {};
  for (const body of ['committed', 'rolled back', 'left', 'undone', 'unsure']) {
    const transaction = producer.beginTransaction();
    ids[body] = (await producer.send({ topic, tag: 'tag', body: Buffer.from(body) }, transaction)).messageId;
    if (body === 'committed') await transaction.commit();
    if (body === 'rolled back') await transaction.rollback();
  }
  const consumer = new SimpleConsumer({
    ...common, consumerGroup: 'g', subscriptions: new Map([[topic, '*']]), awaitDuration: 5000,
  });
  await consumer.startup();
  const seen = [];
  const until = Date.now() + 60_000;
  while (Date.now() < until) {
    const views = await consumer.receive(16, 20_000);
    if (views.length === 0 && seen.length >= 4) break;
    for (const view of views) {
      const body = view.body.toString();
      seen.push(body);
      if (body in ids && String(view.messageId) !== ids[body]) throw new Error(`${body}: ${view.messageId}`);
      await consumer.ack(view);
    }
  }
  await consumer.shutdown();
  await producer.shutdown();
  console.log(JSON.stringify({ seen: seen.sort(), checked }));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
