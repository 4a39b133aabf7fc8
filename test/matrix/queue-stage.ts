import { randomUUID } from 'node:crypto';
import type pg from 'pg';
import { type ClaimedJob, SqlSession } from '../queue/sql-session.ts';

/** A job that a worker has claimed. */
export interface HeldClaim {
  readonly id: number;
  readonly claim: number;
}

/** What belongs to one of two clients of the same queue: one at work under a lease, with jobs of its own in every status. */
export interface QueueSide {
  readonly queue: number;
  readonly name: string;
  readonly kind: number;
  /** Another queue with the same kinds. */
  readonly other: string;
  readonly worker: number;
  /** A worker that died: its lease is over, and it holds a job. */
  readonly lost: { readonly worker: number; readonly job: HeldClaim };
  /** Of no key, running. Two, so that one can end and the other go on: they are of one claim. */
  readonly running: readonly [HeldClaim, HeldClaim];
  /** Of a key that is held, running; another one waits behind it. */
  readonly keyed: HeldClaim & { readonly key: string; readonly epoch: number; readonly behind: number };
  /** A key of its own, of which a job is ready. */
  readonly key: string;
  readonly ready: number;
  readonly delayed: number;
  readonly dead: number;
  /** In error: its key stands still behind it. */
  readonly blocker: number;
  /** Running, and of a claim of its own. */
  readonly parent: HeldClaim;
  /** Comes after the parent. */
  readonly child: number;
  /** Waits: another job comes after it and after the parent, so both are in one part of a watch. */
  readonly waitingParent: number;
  readonly schedule: string;
  /** A group with one place. */
  readonly group: string;
  /** Running: it has the place. */
  readonly placed: HeldClaim;
  /** Waits for that place. */
  readonly lined: number;
  /** Of another group: the next claim admits it. */
  readonly admissible: number;
  /** Running, of a group with a rate, in a queue of such groups; of another one a job is admitted by the next claim. */
  readonly rated: HeldClaim & { readonly queue: number; readonly worker: number };
}

export interface QueueStage {
  readonly a: QueueSide;
  readonly b: QueueSide;
}

/** A new queue of one shard, and in it the same for each of two clients. Jobs are due and over, too. */
export async function setQueueStage(client: pg.Client): Promise<QueueStage> {
  const session = await SqlSession.of(client);
  const name = `work ${randomUUID()}`;
  const { queue, kinds } = await session.register(name, KINDS);
  await client.query('update pawl.queue_definition set per_group = 1 where id = $1', [queue]);
  const kind = kinds['job'] ?? -1;
  const other = `other ${randomUUID()}`;
  await session.register(other, KINDS);
  const own = { queue, name, kind, other };
  const rated = `rated ${randomUUID()}`;
  const { queue: paced } = await session.register(rated, KINDS);
  await client.query(
    `update pawl.queue_definition set rate_limit = 100, rate_per = '1 s', per_group = pawl.queue_unlimited() where id = $1`,
    [paced],
  );
  const ofRate = async (which: string): Promise<QueueSide['rated']> => {
    const worker = await session.addWorker(paced);
    await ofGroup(session, rated, `group of ${which}`);
    const [job] = (await session.claim(paced, worker)).jobs;
    if (job === undefined) throw new Error('there was nothing to claim');
    return { queue: paced, worker, id: job.id, claim: job.claim };
  };
  const rates = [await ofRate('a'), await ofRate('b')] as const;
  for (const which of ['a', 'b']) await ofGroup(session, rated, `free of ${which}`);
  const [claimed, others] = [await side(session, own, 'a'), await side(session, own, 'b')];
  // What is to be ready in the end comes last: the claims above would have brought it.
  const a = {
    ...claimed,
    ready: await addReady(session, own, claimed.key),
    admissible: await ofGroup(session, name, 'free of a'),
    rated: rates[0],
  };
  const b = {
    ...others,
    ready: await addReady(session, own, others.key),
    admissible: await ofGroup(session, name, 'free of b'),
    rated: rates[1],
  };
  await client.query(`update pawl.queue_delayed set run_at = clock_timestamp() - interval '1 ms' where id = any ($1)`, [
    await session.add(queue, [later(kind), later(kind)]),
  ]);
  return { a, b };
}

async function ofGroup(session: SqlSession, queue: string, group: string): Promise<number> {
  const job = JSON.stringify({ queue, kind: 'job', group });
  return Number((await session.one<{ id: string }>('select pawl.enqueue($1::jsonb)', [job])).id);
}

async function addReady(
  session: SqlSession,
  { queue, kind }: Pick<QueueSide, 'queue' | 'kind'>,
  key: string,
): Promise<number> {
  const [ready = -1] = await session.add(queue, [{ kind }]);
  await session.add(queue, [{ kind, key }]);
  return ready;
}

/** A process that registers declares the same. */
export const KINDS = [
  { name: 'job' },
  { name: 'once', unique: true },
  { name: 'single', rule: { by: 'key', while: 'outstanding' } },
  { name: 'newest', rule: { by: 'key', while: 'waiting', replace: true } },
  { name: 'fatal', onError: 'letter' },
  { name: 'letter' },
] as const;

function later(kind: number): { kind: number; runAt: Date } {
  return { kind, runAt: new Date(Date.now() + 3_600_000) };
}

async function side(
  session: SqlSession,
  { queue, name, kind, other }: Pick<QueueSide, 'queue' | 'name' | 'kind' | 'other'>,
  which: string,
): Promise<Omit<QueueSide, 'ready' | 'admissible' | 'rated'>> {
  const [worker, lost] = [await session.addWorker(queue), await session.addWorker(queue)];
  await session.add(queue, [{ kind }, { kind }]);
  const running = (await session.claim(queue, worker, { limit: 2 })).jobs.map(({ id, claim }) => ({ id, claim }));
  const group = `group of ${which}`;
  await ofGroup(session, name, group);
  const [placed] = (await session.claim(queue, worker, { limit: 1 })).jobs;
  await session.add(queue, [{ kind }]);
  const [parent] = (await session.claim(queue, worker, { limit: 1 })).jobs;
  const { id: child } = await session.one<{ id: string }>('select pawl.enqueue($1::jsonb)', [
    JSON.stringify({ queue: name, kind: 'job', after: [String(parent?.id)] }),
  ]);
  const [waitingParent = -1] = await session.add(queue, [later(kind)]);
  await session.one('select pawl.enqueue($1::jsonb)', [
    JSON.stringify({ queue: name, kind: 'job', after: [String(parent?.id), String(waitingParent)] }),
  ]);
  // Looked at, and left, by the next claim.
  const lined = await ofGroup(session, name, group);
  const held = `held by ${which}`;
  const [, behind = -1] = await session.add(queue, [
    { kind, key: held },
    { kind, key: held },
  ]);
  const take = async (): Promise<ClaimedJob | undefined> =>
    (await session.claim(queue, worker, { limit: 1, chain: 1 })).jobs[0];
  // The first one may only move jobs of the other side's key out of the way.
  const keyed = (await take()) ?? (await take());
  await session.add(queue, [{ kind }]);
  const [ofLost] = (await session.claim(queue, lost, { limit: 1 })).jobs;
  await session.expire(lost);
  const dead = await deadJob(session, queue, worker, kind);
  // Old enough to be pruned.
  const old = await deadJob(session, queue, worker, kind);
  await session.client.query(`update pawl.queue_dead set at = at - interval '1 year' where id = $1`, [old]);
  const blocker = await blockingJob(session, queue, worker, kind, `blocked by ${which}`);
  const [delayed = -1] = await session.add(queue, [later(kind)]);
  const schedule = `schedule of ${which}`;
  await session.one('select pawl.queue_set_schedule($1)', [
    JSON.stringify({ queue: name, name: schedule, ...SCHEDULE }),
  ]);
  const key = `key of ${which}`;
  await session.one('select pawl.enqueue($1::jsonb)', [
    JSON.stringify({ queue: name, kind: 'newest', key, delay: '1 hour' }),
  ]);
  const [first, second] = running;
  if (!first || !second || !keyed || !ofLost || !parent || !placed) {
    throw new Error(
      `the claims of the stage did not bring what they were to: ${JSON.stringify([which, running, keyed, ofLost, parent, placed])}`,
    );
  }
  return {
    queue,
    name,
    kind,
    other,
    worker,
    lost: { worker: lost, job: ofLost },
    running: [first, second],
    keyed: { id: keyed.id, claim: keyed.claim, key: held, epoch: keyed.epoch ?? -1, behind },
    key,
    delayed,
    dead,
    blocker,
    parent: { id: parent.id, claim: parent.claim },
    child: Number(child),
    waitingParent,
    schedule,
    group,
    placed: { id: placed.id, claim: placed.claim },
    lined,
  };
}

export const SCHEDULE = {
  cron: '* * * * *',
  timezone: 'UTC',
  kind: 'job',
  key: null,
  priority: 0,
  payload: {},
  missed: 'last',
  next: 1000,
} as const;

async function deadJob(session: SqlSession, queue: number, worker: number, kind: number): Promise<number> {
  await session.add(queue, [{ kind }]);
  const [job] = (await session.claim(queue, worker, { limit: 1 })).jobs;
  if (job === undefined) throw new Error('there was nothing to claim');
  await session.settle(queue, worker, { fail: [{ claim: job.claim, id: job.id, to: 'error' }] });
  return job.id;
}

/** A job in error behind which its key stands still, with another job parked. */
async function blockingJob(
  session: SqlSession,
  queue: number,
  worker: number,
  kind: number,
  key: string,
): Promise<number> {
  const setBlocks = (blocks: boolean): Promise<unknown> =>
    session.client.query('update pawl.queue_definition set blocks = $2 where id = $1', [queue, blocks]);
  // Ended without a claim, which would move other jobs of the stage out of the way.
  const [id = -1] = await session.add(queue, [{ kind, key }]);
  await setBlocks(true);
  const charge = { queue, shard: 0, worker, ids: [id], attempts: [null], ends: true, reason: 'refused', error: 'no' };
  await session.one('select pawl.queue_charge($1)', [JSON.stringify(charge)]);
  await setBlocks(false);
  await session.add(queue, [{ kind, key }]);
  await session.one('select pawl.queue_park($1::smallint, 0::smallint, array[$2])', [queue, key]);
  return id;
}
