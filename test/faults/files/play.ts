import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CorruptObject } from '../../../src/base/errors.ts';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createFiles, type Files } from '../../../src/files/index.ts';
import type { Member } from '../member/member.ts';
import { PATIENCE_MS, Patience, untilDone } from '../patience.ts';
import type { Complaint } from '../queue/history.ts';
import { readLocks } from '../queue/read.ts';
import type { Stage } from '../stage.ts';
import { GroundStore } from './ground-store.ts';
import type { ClientEvent, FilesHistory, SweeperEvent } from './history.ts';
import { limitsOf } from './member-store.ts';
import type { FilesPlan } from './plan.ts';
import { plantInDatabase, plantInStore } from './plants.ts';
import { readTables, toWishes } from './read.ts';

/** The limit with a planted bug: then objects that are never collected are the expected violation. */
const PLANTED_MS = 5000;

/** Plays the plan. @returns its history */
export async function playFiles(plan: FilesPlan, stage: Stage): Promise<FilesHistory> {
  await using store = await GroundStore.open(plan, stage.folder);
  await stage.eye.query('create table faults_committed (op text not null)');
  await plantInDatabase(stage.plant, stage.eye);
  const [clients, sweepers] = await start(plan, stage, store);
  const [done] = await Promise.all([store.inflict(plan), stage.inflict()]);
  Object.assign(stage.inflicted, done);
  await untilDone(clients, 'clients');
  const stopped = await stop(clients);
  const complaints = [...stopped, ...(await stop(sweepers))];
  // By then, delayed requests have arrived.
  if ('delay' in done) await sleep(2100);
  const { told, hastenedMs } = await finish(plan, stage, store);
  const asked = await Promise.all(clients.map((member) => member.events<ClientEvent>()));
  const swept = (await Promise.all(sweepers.map((member) => member.events<SweeperEvent>()))).flat();
  const tables = await readTables(stage.eye);
  const rotten = new Set(store.rotten);
  const isCalm = plan.faults.every(({ do: name }) => name === 'kill');
  return {
    ...tables,
    wishes: asked.flatMap(toWishes),
    stored: await store.stored(),
    quarantined: await store.quarantined(),
    strangers: store.strangers,
    rotten: tables.rows.flatMap(({ object, sha256 }) => (rotten.has(object) && sha256 !== null ? [sha256] : [])),
    unfinished: store.unfinished,
    isWayDamaged: plan.storeFaults.some(({ do: name }) => name === 'flip' || name.startsWith('short')),
    retainMs: plan.retainMs,
    graceMs: plan.limitMs,
    hastenedMs,
    complaints: [...complaints, ...told, ...(isCalm ? hung([...asked.flat(), ...swept]) : [])],
  };
}

async function start(plan: FilesPlan, stage: Stage, store: GroundStore): Promise<[Member[], Member[]]> {
  const env = {
    STORE: JSON.stringify(store.place),
    LIMIT: String(plan.limitMs),
    RETAIN: String(plan.retainMs),
    HOT: join(stage.folder, 'hot'),
  };
  const killAt = (member: number): string => JSON.stringify(plan.killAt[member] ?? []);
  const clients = plan.clients.map(async (operations, index) => {
    const path = join(stage.folder, `operations-${index}.json`);
    await writeFile(path, JSON.stringify(operations));
    const own = { OPERATIONS: path, CLIENT: String(index), KILL_AT: killAt(index) };
    return { script: 'faults/files/client.child.ts', name: `client-${index}`, env: { ...env, ...own } };
  });
  const sweepers = Array.from({ length: plan.sweepers }, (_, index) => ({
    script: 'faults/files/sweeper.child.ts',
    name: `sweeper-${index}`,
    env: { ...env, KILL_AT: killAt(plan.clients.length + index) },
  }));
  const all = await stage.start([...(await Promise.all(clients)), ...sweepers]);
  return [all.slice(0, plan.clients.length), all.slice(plan.clients.length)];
}

async function stop(members: readonly Member[]): Promise<Complaint[]> {
  const told = await Promise.all(members.map((member) => member.stop()));
  return told.flatMap((story, index) =>
    story === undefined
      ? []
      : [{ rule: 'a process stops when it is told to', about: members[index]?.name ?? '', story: [story] }],
  );
}

/** Checks, in this process, which no fault hits, that the store works again, and collects all due objects. */
async function finish(
  { retainMs }: FilesPlan,
  stage: Stage,
  store: GroundStore,
): Promise<{ told: Complaint[]; hastenedMs: number }> {
  await using engine = postgres(stage.url, { max: 3 });
  const limits = limitsOf(20_000);
  const content = store.client();
  plantInStore(stage.plant, content);
  await using files = createFiles(engine, { content, limits, pending: '1m', retain: retainMs, tombstone: 0 });
  const { rows } = await stage.eye.query<{ ms: number }>(
    'select (extract(epoch from clock_timestamp()) * 1000)::float8 as ms',
  );
  const hastenedMs = rows[0]?.ms ?? 0;
  const told: Complaint[] = [];
  const attempt = async (rule: string, work: () => Promise<unknown>): Promise<void> => {
    await work().catch((error: unknown) => told.push({ rule, about: store.client().where, story: [String(error)] }));
  };
  await attempt('a store works again when the faults are over', async () => {
    const upload = await files.upload('after all', 'is well');
    await upload.abandon();
    await readAny(files);
  });
  await attempt('what is due is collected when the faults are over', () => collect(stage, files));
  const left = (await store.markers()).filter((name) => !/^pawl-store(\.copy)?\.json$/.test(name));
  if (left.length > 0) told.push({ rule: 'no draft stays', about: left.join(', '), story: [] });
  return { told, hastenedMs };
}

/** Reads a document. Damaged bytes may fail the read; no other error may. */
async function readAny(files: Files): Promise<void> {
  const [version] = await files.list({ limit: 1 });
  if (version === undefined) return;
  try {
    for await (const _ of (await files.read(version.id)).stream);
  } catch (error) {
    if (!(error instanceof CorruptObject)) throw error;
  }
}

/** Sweeps until only kept objects are left. All deadlines are moved to now. */
async function collect(stage: Stage, files: Files): Promise<void> {
  const patienceMs = stage.plant === undefined ? PATIENCE_MS : PLANTED_MS;
  let left: string[] = [];
  for (const patience = new Patience(patienceMs); patience.isLeft; await sleep(50)) {
    await stage.eye.query(
      `update pawl.file_object set collect_at = clock_timestamp()
       where (state in ('pending', 'live', 'deleting') or (state = 'deleted' and deletions < 2)) and collect_at > clock_timestamp()`,
    );
    await files.sweep();
    const { rows } = await stage.eye.query<{ told: string; count: number }>(
      `select count(*) over ()::int as count, format('%s of %s is %s, deleted %s times, due in %s', object, id, state, deletions, collect_at - clock_timestamp()) as told
       from pawl.file_object where state in ('pending', 'deleting') or (state = 'deleted' and deletions < 2) limit 20`,
    );
    left = rows.map((row) => row.told);
    if (left.length === 0) return;
    patience.seeLeft(rows[0]?.count ?? 0);
  }
  throw new Error([...left, ...(await readLocks(stage.eye))].join('\n'));
}

/** If the database answers, an operation that takes longer than all limits together has a call of the store without a limit. */
function hung(events: readonly { readonly do: string; readonly member: string; readonly op?: string }[]): Complaint[] {
  return events
    .filter((event) => event.do === 'hung')
    .map(({ member, op = 'a pass' }) => ({
      rule: 'every call ends within its limits',
      about: `${member} ${op}`,
      story: [],
    }));
}
