import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { one } from './move.ts';

/** A turn that is under way. */
export interface Turn {
  readonly actor: number;
  readonly epoch: number;
  readonly worker: number;
}

/** What belongs to one of two clients of the same type of actors. */
export interface ActorSide {
  readonly type: number;
  readonly typeName: string;
  readonly worker: number;
  /** A worker that died: its lease is over, and it holds a turn. */
  readonly lost: { readonly worker: number; readonly turn: Turn };
  readonly running: Turn;
  /** Nothing to do until something comes. */
  readonly idle: number;
  /** To be claimed. */
  readonly due: number;
  /** A message that is asked with, to the idle actor. */
  readonly question: number;
  readonly page: string;
  /** That the page was opened, which somebody is to be told. */
  readonly notice: number;
}

export interface ActorStage {
  readonly a: ActorSide;
  readonly b: ActorSide;
}

/** The properties of a type, except its name. */
export const TYPE = {
  semaphores: ['go'],
  always: [],
  machine: { initial: 'on', states: { on: { to: ['off'] }, off: { to: ['on'] } } },
  version: 1,
  history: null,
  backoff: [1, 2, 3, 0],
} as const;

/** A new type, and the same actors and dispatchers of it for each of two clients. */
export async function setActorStage(client: pg.Client): Promise<ActorStage> {
  const typeName = `machine ${randomUUID()}`;
  const ids = await one(client, 'select pawl.actor_register($1)', [JSON.stringify([{ ...TYPE, name: typeName }])]);
  const own = { type: Number(Reflect.get(Object(ids), typeName)), typeName };
  const stage = { a: await side(client, own, 'a'), b: await side(client, own, 'b') };
  // Whatever was due at the beginning has been claimed: these are due now.
  for (const { due } of [stage.a, stage.b]) {
    await client.query('update pawl.actor_instance set wake_at = clock_timestamp() where id = $1', [due]);
  }
  return stage;
}

async function side(
  client: pg.Client,
  { type, typeName }: Pick<ActorSide, 'type' | 'typeName'>,
  which: string,
): Promise<ActorSide> {
  const [worker, lost] = [await addWorker(client, type), await addWorker(client, type)];
  const running = await claim(client, worker, await create(client, typeName));
  const ofLost = await claim(client, lost, await create(client, typeName));
  await client.query(`update pawl.actor_worker set expires_at = clock_timestamp() - interval '1 s' where id = $1`, [
    lost,
  ]);
  const [idle, due] = [await create(client, typeName), await create(client, typeName)];
  const asked = await one(client, 'select pawl.actor_ask($1)', [question(idle)]);
  await client.query('delete from pawl.actor_inbox where actor = $1', [idle]);
  await client.query(`update pawl.actor_instance set wake_at = 'infinity' where id = any ($1)`, [[idle, due]]);
  const page = `page of ${which} of ${typeName}`;
  await one(client, 'select pawl.page_open($1)', [JSON.stringify({ tag: page, summary: 'out of paper' })]);
  const notice = await one(client, 'select max(id) from pawl.actor_notice');
  return {
    type,
    typeName,
    worker,
    lost: { worker: lost, turn: ofLost },
    running,
    idle,
    due,
    question: Number(Reflect.get(Object(JSON.parse(String(asked))), 'message')),
    page,
    notice: Number(notice),
  };
}

/** What `actor_ask` takes. */
export function question(actor: number): string {
  return JSON.stringify([{ actor, name: 'how?', channel: 'pawl_nobody', wait: 3_600_000, direct: true }, {}]);
}

async function addWorker(client: pg.Client, type: number): Promise<number> {
  const text = `
    insert into pawl.actor_worker (host, pid, concurrency, lease, expires_at, types, knows, wants_notify)
    values ('host', 1, 10, interval '10 min', clock_timestamp() + interval '10 min', array[$1]::smallint[], $2::jsonb, true)
    returning id::text`;
  return Number(await one(client, text, [type, JSON.stringify({ [type]: { $version: 1, on: true, off: true } })]));
}

async function create(client: pg.Client, type: string): Promise<number> {
  const made = await one(client, 'select pawl.actor_create_json($1)', [
    JSON.stringify([{ type, state: 'on', version: 1 }, {}]),
  ]);
  return Number(Reflect.get(Object(made), 'id'));
}

async function claim(client: pg.Client, worker: number, actor: number): Promise<Turn> {
  await one(client, 'select pawl.actor_claim_one($1, $2)', [worker, actor]);
  const epoch = await one(client, 'select epoch from pawl.actor_instance where id = $1 and worker = $2', [
    actor,
    worker,
  ]);
  if (epoch === undefined) throw new Error(`actor ${actor} could not be claimed`);
  return { actor, epoch: Number(epoch), worker };
}
