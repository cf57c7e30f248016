// RocketMQ's own client for Node, as load.py is for Python.
// Usage: node load.cjs HOST:PORT TOPIC FIRST_TOKEN
const readline = require('node:readline');
const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs');

const [endpoints, topic, first] = process.argv.slice(2);
const common = { endpoints, namespace: '', requestTimeout: 3000 };
const PAUSE_MS = 40;
const RECALLED_BEFORE_MS = 50;
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const tell = (...fields) => process.stdout.write(`${JSON.stringify(fields)}\n`);
let token = Number(first);
let stops = false;
let ends = false;
const later = [];

function got(group, view) {
  const number = Number(view.body.toString());
  const marked = view.properties.has('tarry.maybe_duplicate');
  tell('got', group, number, view.messageId, view.deliveryAttempt, marked, Date.now());
  return number;
}

async function receive(consumer) {
  while (!ends) {
    let views = [];
    try {
      views = await consumer.receive(32, 10_000);
    } catch (error) {
      tell('failed', 'receive', String(error));
      await wait(100);
    }
    const numbers = views.map((view) => got('simple', view)); // before an ack waits for a leader
    for (const [place, view] of views.entries()) {
      try {
        await consumer.ack(view);
        tell('done', 'simple', numbers[place], view.deliveryAttempt, Date.now());
      } catch (error) {
        tell('failed', 'ack', String(error));
      }
    }
  }
}

async function recall(producer, number, handle) {
  try {
    await producer.recallMessage(topic, handle);
    tell('recalled', number, Date.now(), '');
  } catch (error) {
    tell('recalled', number, Date.now(), String(error) || 'error');
  }
}

async function send(producer) {
  const number = token;
  const kind = number % 10;
  token += 1;
  const message = { topic, tag: '', body: Buffer.from(String(number)) };
  const sentMs = Date.now();
  let dueMs = sentMs;
  if (kind === 3 || kind === 8) {
    message.messageGroup = `node-${number % 4}`;
  } else if (kind !== 1 && kind !== 6) {
    dueMs += 1500;
    message.deliveryTimestamp = new Date(dueMs);
  }
  const key = message.messageGroup ?? '';
  let receipt;
  try {
    receipt = await producer.send(message);
  } catch (error) {
    tell('sent', number, key, dueMs, sentMs, Date.now(), '', String(error) || 'error');
    return;
  }
  tell('sent', number, key, dueMs, sentMs, Date.now(), receipt.messageId, '');
  if (kind === 0) await recall(producer, number, receipt.recallHandle);
  if (kind === 2 || kind === 5) later.push([dueMs, number, receipt.recallHandle]);
}

async function main() {
  const producer = new Producer({ ...common, topics: [topic] });
  await producer.startup();
  const subscriptions = new Map([[topic, '*']]);
  const push = new PushConsumer({
    ...common, consumerGroup: 'push', subscriptions,
    messageListener: {
      async consume(view) {
        const fails = got('push', view) % 10 === 4 && view.deliveryAttempt === 1;
        return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
      },
    },
  });
  await push.startup();
  const receives = { consumerGroup: 'simple', subscriptions, awaitDuration: 5000 };
  const simple = new SimpleConsumer({ ...common, ...receives });
  await simple.startup();
  let lines = 0;
  readline.createInterface({ input: process.stdin }).on('line', () => {
    lines += 1;
    stops = true;
    ends = lines > 1;
  }).on('close', () => {
    stops = true;
    ends = true;
  });
  const receiving = receive(simple);
  tell('begun');
  while (!stops || later.length > 0) {
    if (!stops) await send(producer);
    while (later.length > 0 && later[0][0] - RECALLED_BEFORE_MS <= Date.now()) {
      const [, number, handle] = later.shift();
      await recall(producer, number, handle);
    }
    await wait(PAUSE_MS);
  }
  tell('stopped');
  while (!ends) await wait(100);
  await receiving;
  await push.shutdown();
  await simple.shutdown();
  await producer.shutdown();
  process.stdout.write('["ended"]\n', () => process.exit(0));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
