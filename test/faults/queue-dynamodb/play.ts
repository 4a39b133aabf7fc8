import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { QueryCommand, ScanCommand } from '@aws-sdk/client-dynamodb';
import { dynamodb, fieldsOf } from '../../../src/engine/dynamodb/index.ts';
import { type Place, placeOf } from '../lock/ground/dynamodb.ts';
import { borrowLocal } from '../lock/local.ts';
import type { Member, Note } from '../member/member.ts';
import type { Stage } from '../stage.ts';
import { callbackOf, type Effect, type Outcome, type QueueEvent, type QueueOnDynamoHistory, rowOf } from './history.ts';
import type { DynamoQueuePlan } from './plan.ts';
import { type FaultyQueue, openQueue } from './queue.ts';

/** The longest time without progress: a busy machine is slow, but a stuck schedule must end. */
const PATIENCE_MS = 60_000;

/** Plays a plan on a table of its own. @param endpoint  of a DynamoDB Local; default: one is started */
export function playQueue(
  endpoint?: () => Promise<string>,
): (plan: DynamoQueuePlan, stage: Stage) => Promise<QueueOnDynamoHistory> {
  return async (plan, stage) => {
    const given = await endpoint?.();
    await using local =
      given === undefined ? await borrowLocal() : { endpoint: given, [Symbol.asyncDispose]: async () => {} };
    const before = `${local.endpoint}/queue-${plan.seed}-${process.pid}-${Math.random().toString(36).slice(2)}`;
    const place = placeOf(before);
    const engine = dynamodb(place.client, { table: place.table });
    await engine.migrate();
    const queue = openQueue(engine, plan.shards);
    await queue.register();
    const members = await startMembers(plan, stage, before);
    await stage.inflict();
    const complaints = [...(await drained(queue, place, members))];
    for (const member of members) {
      const story = await member.stop();
      if (story !== undefined)
        complaints.push({ rule: 'a process stops when it is told to', about: member.name, story: [story] });
    }
    complaints.push(...(await endedTwice(place)));
    const events = await eventsOf(members);
    const history = {
      events,
      effects: await readEffects(place),
      outcomes: await readOutcomes(queue, events),
      complaints,
    };
    place.client.destroy();
    return history;
  };
}

async function startMembers(
  { processes, seed, leaseMs, shards }: DynamoQueuePlan,
  stage: Stage,
  before: string,
): Promise<Member[]> {
  const options = processes.map((_, index) => ({
    script: 'faults/queue-dynamodb/process.child.ts',
    name: `process-${index}`,
    before,
    env: {
      PLAN: JSON.stringify({ seed: seed * 31 + index, leaseMs, shards }),
      STEPS: join(stage.folder, `steps-${index}.json`),
    },
  }));
  for (const [index, { env }] of options.entries()) await writeFile(env.STEPS, JSON.stringify(processes[index]));
  return stage.start(options);
}

/** Waits until every process has done its steps, and all their jobs have ended. */
async function drained(
  queue: FaultyQueue,
  place: Place,
  members: readonly Member[],
): Promise<QueueOnDynamoHistory['complaints']> {
  let waiting: string[] = [];
  let seen = -1;
  for (let since = performance.now(); performance.now() - since < PATIENCE_MS; await sleep(300)) {
    const events = await eventsOf(members);
    const outcomes = await readOutcomes(queue, events);
    const effects = await readEffects(place);
    const finished = new Set(events.flatMap((event) => (event.do === 'finished' ? [event.member] : [])));
    const open = [...outcomes].filter(([, { status }]) => status === 'new' || status === 'in-progress');
    const uncalled = events.flatMap((event) =>
      event.do === 'sealed' && !effects.has(rowOf(callbackOf(event.name), null))
        ? [`the callback of ${event.name}`]
        : [],
    );
    waiting = [
      ...members.map(({ name }) => name).filter((name) => !finished.has(name)),
      ...open.map(([name]) => name),
      ...uncalled,
    ];
    if (waiting.length === 0 && (await isDrained(queue))) return [];
    const done = events.length + effects.size - open.length;
    if (done !== seen) since = performance.now();
    seen = done;
  }
  const story = [JSON.stringify(await queue.stats()), ...members.flatMap((member) => member.lastWords())];
  return [{ rule: 'everything is done in the end', about: waiting.join(', '), story }];
}

function isDrained(queue: FaultyQueue): Promise<boolean> {
  return queue.drain({ delayed: true, timeout: '500ms' }).then(
    () => true,
    () => false,
  );
}

async function eventsOf(members: readonly Member[]): Promise<Note<QueueEvent>[]> {
  const all = (await Promise.all(members.map((member) => member.events<QueueEvent>()))).flat();
  return all.toSorted((a, b) => a.at - b.at);
}

async function readOutcomes(queue: FaultyQueue, events: readonly Note<QueueEvent>[]): Promise<Map<string, Outcome>> {
  const outcomes = new Map<string, Outcome>();
  for (const event of events) {
    if (event.do !== 'told') continue;
    const { id, status } = await queue.get(event.id);
    const history = await queue.history(id);
    outcomes.set(event.name, { id, status, completions: history.filter(({ to }) => to === 'complete').length });
  }
  return outcomes;
}

/** The heads count each job that they drop as complete, but the history shows only one end of a job. The table has one queue. */
async function endedTwice({ client, table }: Place): Promise<QueueOnDynamoHistory['complaints']> {
  const { Items = [] } = await client.send(new ScanCommand({ TableName: table, ConsistentRead: true }));
  let counted = 0;
  const complete = new Set<string>();
  for (const item of Items) {
    const [pk = '', sk = ''] = [item['pk']?.S, item['sk']?.S];
    const fields = fieldsOf(item as Parameters<typeof fieldsOf>[0]);
    if (sk === 'head') for (const [name, n] of Object.entries(fields)) counted += name.startsWith('r:') ? Number(n) : 0;
    if (!sk.startsWith('o#')) continue;
    const list: [number, string][] = JSON.parse(String(fields['y']));
    for (const [index, to] of list) if (to === 'complete') complete.add(`${pk} ${sk.split('#')[1]} ${index}`);
  }
  const story = [`${counted} counted, ${complete.size} complete`];
  return counted > complete.size ? [{ rule: 'no job ends twice', about: 'the queue', story }] : [];
}

async function readEffects({ client, table }: Place): Promise<Map<string, Effect[]>> {
  const { Items = [] } = await client.send(
    new QueryCommand({
      TableName: table,
      ConsistentRead: true,
      KeyConditionExpression: 'pk = :pk',
      ExpressionAttributeValues: { ':pk': { S: 'effects' } },
    }),
  );
  return new Map(
    Items.map(({ sk, log }) => [
      sk?.S ?? '',
      (log?.L ?? []).map(({ S }): Effect => {
        const [name, id, at]: [string, string, number] = JSON.parse(S ?? '[]');
        return { name, id, at };
      }),
    ]),
  );
}
