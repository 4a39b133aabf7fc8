import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { postgres } from '../../../src/engine/postgres/index.ts';
import type { Member } from '../member/member.ts';
import { PATIENCE_MS, Patience, untilDone } from '../patience.ts';
import type { Stage } from '../stage.ts';
import { change } from './change.ts';
import type { CaptureHistory, Complaint } from './check/history.ts';
import { declare } from './declaration.ts';
import type { CapturePlan, Work } from './plan.ts';
import { plantInDatabase } from './plants.ts';
import { readCapture, readLeft, readSessions, type WorkLeft } from './read.ts';
import { AUDIT, ROWS, SCHEMA } from './schema.ts';
import { prepareTurn } from './turn.ts';

/** The limit with a planted bug: then undelivered work is the expected violation. */
const PLANTED_MS = 15_000;
const logger = { debug() {}, info() {}, warn() {}, error() {} };

/** Plays the plan. @returns its history */
export async function playCapture(plan: CapturePlan, stage: Stage): Promise<CaptureHistory> {
  const copy = await stage.another();
  await prepare(stage, copy.url);
  await using turn = await prepareTurn(plan, stage);
  const scene = { plan, stage, copyUrl: copy.url };
  const first = await startAll(scene, stage.url, plan.before, 'before');
  await Promise.all([
    stage.inflict(),
    turn.begin(),
    withShop(stage.url, copy.url, ({ orders, changes }) =>
      change(stage.eye, plan.changes, () => Promise.all([orders.apply(), changes.apply()])),
    ),
  ]);
  await untilDone(first.writers, 'writers');
  if (plan.turn === 'none') return await finish(scene, stage.url, first);
  // All processes end at once, in the middle of their work.
  await Promise.all([...first.workers, ...first.writers].map((member) => member.end()));
  const url = await turn.end();
  await withShop(url, copy.url, (shop) => turn.open(shop));
  // The restored database has its own functions, so the bug is planted there, too.
  if (plan.turn === 'dump') await plantAt(url, scene);
  const second = await startAll(scene, url, plan.after, 'after');
  await withShop(url, copy.url, (shop) => turn.settle(shop));
  await untilDone(second.writers, 'writers');
  // Awaited here, before the turn disposes of its servers.
  return await finish(scene, url, second);
}

interface Scene {
  readonly plan: CapturePlan;
  readonly stage: Stage;
  readonly copyUrl: string;
}

interface Members {
  readonly workers: readonly Member[];
  readonly writers: readonly Member[];
}

async function prepare(stage: Stage, copyUrl: string): Promise<void> {
  await stage.eye.query(SCHEMA);
  await stage.eye.query(ROWS);
  await stage.eye.query(AUDIT);
  await withShop(stage.url, copyUrl, async ({ orders, changes, projections }) => {
    await orders.apply();
    await changes.apply();
    for (const projection of projections) await projection.backfill();
  });
  if (stage.plant !== undefined) await plantInDatabase(stage.plant, stage.eye, copyUrl);
}

async function plantAt(url: string, { stage: { plant }, copyUrl }: Scene): Promise<void> {
  if (plant === undefined) return;
  const eye = new pg.Pool({ connectionString: url, max: 1 });
  try {
    await plantInDatabase(plant, eye, copyUrl);
  } finally {
    await eye.end();
  }
}

async function withShop<T>(
  url: string,
  copyUrl: string,
  work: (shop: ReturnType<typeof declare>) => Promise<T>,
): Promise<T> {
  await using engine = postgres(url, { max: 4, logger });
  await using to = postgres(copyUrl, { max: 2, logger });
  return await work(declare(engine, to));
}

async function startAll(
  { plan, stage, copyUrl }: Scene,
  url: string,
  works: readonly (readonly Work[])[],
  when: string,
): Promise<Members> {
  const env = {
    COPY_URL: copyUrl,
    BATCH: String(plan.batch),
    CONCURRENCY: String(plan.concurrency),
    TIMEOUT: String(plan.timeoutMs),
  };
  const workers = await stage.start(
    Array.from({ length: plan.workers }, (_, index) => ({
      script: 'faults/capture/worker.child.ts',
      name: `worker-${index}-${when}`,
      env,
      before: url,
    })),
  );
  const writers = works.map(async (work, index) => {
    const path = join(stage.folder, `work-${when}-${index}.json`);
    await writeFile(path, JSON.stringify(work));
    const name = `writer-${index}-${when}`;
    return { script: 'faults/capture/writer.child.ts', name, env: { WORK: path }, before: url };
  });
  return { workers, writers: await stage.start(await Promise.all(writers)) };
}

/** Repairs the triggers, waits until the consumers have no work left, and reads the history. */
async function finish({ stage, copyUrl }: Scene, url: string, { workers, writers }: Members): Promise<CaptureHistory> {
  const options = { max: 3, application_name: 'eye' };
  const [eye, there] = [url, copyUrl].map((connectionString) =>
    new pg.Pool({ connectionString, ...options }).on('error', () => {}),
  );
  if (eye === undefined || there === undefined) throw new Error('no eyes');
  try {
    const stopped = await stop(writers);
    const wrong = await withShop(url, copyUrl, async ({ orders, changes }) => {
      await enable(eye);
      for (const capture of [orders, changes]) await capture.apply();
      const found = [...(await orders.verify()), ...(await changes.verify())];
      return found.map(({ object, problem }) => `${object}: ${problem}`);
    });
    const drained = await drain(eye, stage.plant === undefined ? PATIENCE_MS : PLANTED_MS);
    const complaints = [...stopped, ...drained, ...(await stop(workers))];
    return { ...(await readCapture(eye, there)), wrong, complaints };
  } finally {
    await Promise.all([eye.end(), there.end()]);
  }
}

/** Enables triggers that stayed disabled because of a fault. It repairs nothing else: apply() must repair the rest. */
async function enable(eye: pg.Pool): Promise<void> {
  const { rowCount } = await eye.query(
    "select 1 from pg_trigger where tgrelid = 'order_line'::regclass and tgenabled = 'D'",
  );
  if (rowCount !== 0) await eye.query('alter table order_line enable trigger user');
}

async function drain(eye: pg.Pool, patienceMs: number): Promise<Complaint[]> {
  let left: WorkLeft[] = [];
  let isEmpty = false;
  for (const patience = new Patience(patienceMs); patience.isLeft; await sleep(100)) {
    left = await readLeft(eye);
    // Twice in a row, because a link or a table leads to further work.
    if (left.length === 0 && isEmpty) return [];
    isEmpty = left.length === 0;
    patience.seeLeft(left.reduce((sum, { count }) => sum + count, 0));
  }
  return [
    {
      rule: 'everything is delivered in the end',
      about: `${left.length} kinds of work are left, and have not become less for ${patienceMs} ms`,
      story: [...left.slice(0, 20).map(({ told }) => told), ...(await readSessions(eye))],
    },
  ];
}

async function stop(members: readonly Member[]): Promise<Complaint[]> {
  const told = await Promise.all(members.map((member) => member.stop()));
  return told.flatMap((story, index) =>
    story === undefined
      ? []
      : [{ rule: 'a process stops when it is told to', about: members[index]?.name ?? '', story: [story] }],
  );
}
