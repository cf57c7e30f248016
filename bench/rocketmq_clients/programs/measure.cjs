// RocketMQ's own client for Node, measured as measure.py says.
// Usage: node measure.cjs HOST:PORT TOPIC TASKS RATE_MS SINGLES PER_S LATE_MS CROWD LEAD_MS
const { ConsumeResult, Producer, PushConsumer } = require('rocketmq-client-nodejs');

const [endpoints, topic, ...numbers] = process.argv.slice(2);
const [tasks, rateMs, singles, perS, lateMs, crowd, leadMs] = numbers.map(Number);
const BODY_BYTES = 100;
const HOUR_MS = 3_600_000;
const COMES_MS = 60_000;
const common = { endpoints, namespace: '', requestTimeout: 3000 };
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const now = () => Date.now();
const tell = (...fields) => process.stdout.write(`${JSON.stringify(fields)}\n`);
const came = new Map();
const due = new Map();
let failed = 0;

async function send(producer, token, dueMs) {
  const wholeMs = Math.ceil(dueMs);
  const body = Buffer.from(token.padEnd(BODY_BYTES));
  try {
    await producer.send({ topic, tag: '', body, deliveryTimestamp: new Date(wholeMs) });
  } catch (error) {
    console.error(String(error));
    return false;
  }
  if (now() > wholeMs) return false;
  due.set(token, wholeMs);
  return true;
}

async function sent(producer, token, dueMs) {
  if (!(await send(producer, token, dueMs))) failed += 1;
}

const allTasks = (work) => Promise.all(Array.from({ length: tasks }, (_, task) => work(task)));

async function rate(producer) {
  const start = performance.now();
  let right = 0;
  let wrong = 0;
  await allTasks(async (task) => {
    while (performance.now() < start + rateMs) {
      if (await send(producer, `rate-${task}`, now() + HOUR_MS)) right += 1;
      else wrong += 1;
    }
  });
  const took = performance.now() - start;
  tell('rate', right, wrong, Math.round(took));
  return (1000 * right) / took;
}

async function told(kind) {
  const wanted = [...due].filter(([token]) => token.startsWith(kind));
  const untilMs = wanted.reduce((most, [, dueMs]) => Math.max(most, dueMs), now()) + COMES_MS;
  while (wanted.some(([token]) => !came.has(token)) && now() < untilMs) await wait(100);
  const late = wanted.filter(([token]) => came.has(token)).map(([token, dueMs]) => came.get(token) - dueMs);
  tell(kind, failed, wanted.length - late.length, late);
  failed = 0;
}

async function main() {
  const producer = new Producer({ ...common, topics: [topic] });
  await producer.startup();
  const push = new PushConsumer({
    ...common, consumerGroup: topic, subscriptions: new Map([[topic, '*']]),
    messageListener: {
      async consume(view) {
        const [token] = view.body.toString().split(' ');
        if (!came.has(token)) came.set(token, now());
        return ConsumeResult.SUCCESS;
      },
    },
  });
  await push.startup();
  await rate(producer);
  const perSecond = await rate(producer);
  const took = [];
  for (let number = 0; number < singles; number += 1) {
    const start = performance.now();
    if (await send(producer, `single-${number}`, now() + HOUR_MS)) took.push(performance.now() - start);
  }
  tell('single', singles - took.length, took);
  const start = now();
  const count = Math.floor((perS * lateMs) / 1000);
  await allTasks(async (task) => {
    for (let number = task; number < count; number += tasks) {
      const plannedMs = start + (number * 1000) / perS;
      if (plannedMs > now()) await wait(plannedMs - now());
      await sent(producer, `late-${number}`, plannedMs + leadMs);
    }
  });
  await told('late');
  const instant = now() + Math.max(leadMs, (1500 * crowd) / Math.max(perSecond, 1));
  await allTasks(async (task) => {
    for (let number = task; number < crowd; number += tasks) await sent(producer, `crowd-${number}`, instant);
  });
  await told('crowd');
  process.stdout.write('', () => process.exit(0)); // to shut down takes as long as a poll
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
