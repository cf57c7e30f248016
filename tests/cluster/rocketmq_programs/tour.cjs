// RocketMQ's own client for Node, as tour.py is for Python. Usage: node tour.cjs HOST:PORT TOPIC [KEY SECRET NAMESPACE]
const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const [endpoints, topic, accessKey, accessSecret, namespace = ''] = process.argv.slice(2);
const common = { endpoints, namespace, requestTimeout: 3000 };
if (accessKey) Object.assign(common, { sslEnabled: true, sessionCredentials: { accessKey, accessSecret } });
const SQL = 2; // of the protocol's FilterType, which the package does not export
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

function message(body, more = {}, colour = 'red') {
  return {
    topic, tag: 'tag', keys: [`key-${body}`], body: Buffer.from(body),
    properties: new Map([['colour', colour]]), ...more,
  };
}

async function recalled(producer, handle) {
  try {
    return `OK ${(await producer.recallMessage(topic, handle)).messageId}`;
  } catch (error) {
    return String(error);
  }
}

async function main() {
  const told = { seen: [], simple: {} };
  // several topics: where its settings are not answered again, Node's client waits for ever at its start
  const topics = [topic, ...[2, 3, 4].map((n) => `${topic}-${n}`)];
  const producer = new Producer({ ...common, topics });
  await producer.startup();
  let wanted = 6;
  const push = new PushConsumer({
    ...common, consumerGroup: 'push', subscriptions: new Map([[topic, 'tag || other']]),
    messageListener: {
      async consume(view) {
        const body = view.body.toString();
        told.seen.push([body, view.deliveryAttempt, Date.now(), view.corrupted]);
        if (body === 'fail' && view.deliveryAttempt === 1) return ConsumeResult.FAILURE;
        wanted -= 1;
        return ConsumeResult.SUCCESS;
      },
    },
  });
  await push.startup();

  told.now_id = [(await producer.send(message('now'))).messageId.length === 34];
  told.due_ms = Date.now() + 3000;
  const delayed = await producer.send(message('delayed', { deliveryTimestamp: new Date(told.due_ms) }));
  const far = await producer.send(message('far', { delay: 3 * 86_400_000 }));
  told.recalls = [];
  for (let n = 0; n < 2; n += 1) told.recalls.push((await recalled(producer, far.recallHandle)).split(' ')[0]);
  await producer.send(message('filtered', { tag: 'none' }, 'blue'));
  await producer.send(message('fail'));
  for (let n = 0; n < 3; n += 1) await producer.send(message(`fifo${n}`, { messageGroup: 'group' }));
  for (let n = 0; n < 600 && wanted > 0; n += 1) await wait(100);
  told.all_came = wanted === 0;
  told.recall_of_delivered = await recalled(producer, delayed.recallHandle);
  await push.shutdown();

  const filter = new FilterExpression("colour = 'red' AND size IS NULL", SQL);
  const simple = new SimpleConsumer({
    ...common, consumerGroup: 'simple', subscriptions: new Map([[topic, filter]]), awaitDuration: 5000,
  });
  await simple.startup();
  const until = Date.now() + 60_000;
  while (Object.keys(told.simple).length < 6 && Date.now() < until) {
    for (const view of await simple.receive(16, 20_000)) {
      if (Object.keys(told.simple).length === 0) await simple.changeInvisibleDuration(view, 30_000);
      told.simple[view.body.toString()] = `${view.tag} ${JSON.stringify([...view.properties])} ${view.keys}`;
      await simple.ack(view);
    }
  }
  told.rest = (await simple.receive(16, 20_000)).map((view) => view.body.toString());
  await simple.shutdown();
  await producer.shutdown();
  console.log(JSON.stringify(told));
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
