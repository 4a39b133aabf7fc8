import pg from 'pg';
import * as v from 'valibot';
import { actor, createActors, state } from '../../../src/actor/index.ts';
import { createCapture, sql } from '../../../src/capture/index.ts';
import { statement } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { until } from '../../support/eventually.ts';
import type { House } from '../house.ts';

/** Words that stand in values, each in one place, under the key "secret" or in a text that quotes such a value. */
export const SENTINEL: RegExp = /sent\w+/g;

/** The kind of each: a caller that may read it may find it in an answer. */
export const PAYLOADS = [
  'sentpayload',
  'sentresult',
  'sentprogress',
  'sentfield',
  'sentoldfield',
  'sentend',
  'sentdetail',
  'sentchange',
  'sentmeta',
  'sentapi',
  'sentquery',
] as const;
export const TEXTS = ['senterror', 'sentretry', 'sentturn', 'sentstatement', 'sentconsumer'] as const;
/** No caller ever sees them here. */
export const UNSEEN = ['sentschedule', 'sentmessage', 'sentapimessage', 'sentrefused'] as const;
export const BYTES = 'sentbytes';

export interface Vault {
  /** What the parameters of paths can be, by the name of the parameter and the tag of the route. */
  readonly params: (name: string, tag: string) => readonly string[];
  readonly stop: () => Promise<void>;
}

/** A house in which every value that a program can store says that it is one. */
export async function fillVault(house: House): Promise<Vault> {
  const stops: (() => Promise<unknown>)[] = [];
  const jobs = await fillQueue(house, stops);
  const { actors, page } = await fillActors(house);
  await fillCapture(house, stops);
  await house.files.write('doc/secret', BYTES, { author: 'ada', meta: { secret: 'sentmeta' } });
  await blockSomebody(house, stops);
  const { ask } = house.open();
  const post = (path: string, body: unknown): Promise<{ body: Record<string, unknown> }> =>
    ask(`/api/v1${path}`, { method: 'POST', body });
  const { body: added } = await post('/queues/vault/jobs', { kind: 'idle', payload: { secret: 'sentapi' } });
  await post('/queues/vault/jobs', { kind: 'strict', payload: { secret: 'sentrefused' } });
  await post('/queues/vault/jobs', { kind: 7, payload: { secret: 'sentrefused' } });
  await post(`/actors/${actors[0]}/messages`, { name: 'hello', payload: { secret: 'sentapimessage' } });
  const { body: bulk } = await post('/bulk', { action: 'cancel', query: 'sentquery status:cancelled', queue: 'vault' });
  await until(
    'the bulk action is over',
    async () => (await ask(`/api/v1/bulk/${String(bulk['id'])}`)).body['status'] === 'done',
  );
  const of: Record<string, readonly string[]> = {
    'id of jobs': [...jobs, String(added['id']), String(bulk['id'])],
    'id of actors': actors,
    'id of pages': [page],
    queue: ['vault'],
    type: ['vault'],
    entity: ['vault', 'person'],
    name: ['hourly'],
  };
  return {
    params: (name, tag) => of[`${name} of ${tag}`] ?? of[name] ?? [],
    stop: async () => {
      for (const stop of stops.reverse()) await stop();
    },
  };
}

async function fillQueue({ engine }: House, stops: (() => Promise<unknown>)[]): Promise<string[]> {
  const queue = createQueue(engine, 'vault', {
    kinds: {
      keep: {},
      fail: { attempts: 1 },
      retry: { attempts: 5 },
      idle: {},
      strict: { payload: v.object({ secret: v.number() }) },
    },
    retry: { backoff: { kind: 'fixed', min: '1h', max: '1h' } },
  });
  await queue.schedule('hourly', { cron: '0 3 * * *', kind: 'keep', payload: { secret: 'sentschedule' } });
  const { id: kept } = await queue.enqueue('keep', { secret: 'sentpayload' });
  const { id: failed } = await queue.enqueue('fail', {});
  const { id: retried } = await queue.enqueue('retry', {});
  const worker = queue.work({
    keep: async (unit) => {
      await unit.progress({ secret: 'sentprogress' });
      return { secret: 'sentresult' };
    },
    fail: async () => {
      throw new Error('the other side refused {"secret": "senterror"}');
    },
    retry: async () => {
      throw new Error('the other side is away: secret=sentretry');
    },
    idle: async () => {},
    strict: async () => {},
  });
  await until(
    'all had their turn',
    async () => (await queue.stats()).ready === 0 && (await queue.stats()).delayed === 1,
  );
  await worker.stop();
  stops.push(() => worker.stop());
  return [kept, failed, retried];
}

async function fillActors({ engine }: House): Promise<{ actors: string[]; page: string }> {
  const Vault = actor('vault', {
    initial: 'open',
    fieldHistory: '1h',
    states: {
      open: state({
        to: ['shut'],
        run: async (a) => {
          if (a.fields['ends'] === true) return a.done({ secret: 'sentend' }, { secret: 'changed' });
          throw new Error("the vault does not open: secret: 'sentturn'");
        },
      }),
      shut: state({ to: [], run: async (a) => a.done() }),
    },
  });
  const actors = createActors(engine, [Vault]);
  const { id: failing } = await actors.create(Vault, { secret: 'sentfield' });
  const { id: ended } = await actors.create(Vault, { ends: true, secret: 'sentoldfield' });
  for (const id of [failing, ended]) await actors.work(id);
  await actors.send(failing, 'hello', { secret: 'sentmessage' });
  const details = { secret: 'sentdetail' };
  const { id: page } = await actors.page({ tag: 'vault', summary: 'it does not open', severity: 'error', details });
  return { actors: [failing, ended], page };
}

async function fillCapture({ engine }: House, stops: (() => Promise<unknown>)[]): Promise<void> {
  await engine.query(statement('test.vault', 'create table vault (id bigint primary key, secret text)'));
  const capture = createCapture(engine, {
    entity: 'vault',
    root: 'vault',
    history: { vault: { rows: 'both', columns: ['id', 'secret'] } },
  });
  capture.project({
    into: 'lock',
    columns: { word: 'text' },
    build: sql`select v.id, pg_catalog.set_config('no such "secret": "sentconsumer"', v.secret, true) as word from vault v where v.id = any ($1::bigint[])`,
  });
  await capture.apply();
  await engine.query(statement('test.row', "insert into vault values (1, 'sentchange')"));
  const worker = capture.projections[0]?.run();
  stops.push(async () => worker?.stop());
  const failing = statement('test.failing', 'select 1 from pawl.capture_retry');
  await until('the projection has failed', async () => (await engine.query(failing)).length > 0);
}

/** A session that waits for another's row, and whose statement holds a value. */
async function blockSomebody({ url }: House, stops: (() => Promise<unknown>)[]): Promise<void> {
  const [holder, waiter] = [new pg.Client(url), new pg.Client(url)];
  for (const client of [holder, waiter]) await client.connect();
  await holder.query('begin');
  await holder.query('select from vault where id = 1 for update');
  const waiting = waiter.query("select 'secret=sentstatement' from vault where id = 1 for update");
  stops.push(async () => {
    await holder.query('rollback');
    await waiting;
    await Promise.all([holder.end(), waiter.end()]);
  });
}
