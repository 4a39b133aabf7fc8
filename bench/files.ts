import { type ChildProcess, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import type * as Postgres from '../src/engine/postgres/index.ts';
import type * as Files from '../src/files/index.ts';
import { type Bench, type Context, interleave, type Measure } from './harness/context.ts';
import { atMost, median, ratio } from './harness/figures.ts';

const MIB = 1 << 20;
const FULL = { writes: 30, streamMiB: 2048, reads: 200, documents: 1000, versions: 10, more: 10_000 };
const QUICK = { writes: 8, streamMiB: 512, reads: 50, documents: 200, versions: 10, more: 2000 };
type Size = typeof FULL;

/** Loads a module of the built library, as it is published. */
const built = async <Module>(path: string): Promise<Module> =>
  (await import(new URL(`../dist/${path}`, import.meta.url).href)) as Module;

interface World {
  readonly engine: Postgres.PostgresEngine;
  readonly library: typeof Files;
  readonly statement: typeof Postgres.statement;
  readonly dir: string;
  readonly size: Size;
}

/** Files: the cost of a write compared with plain writes of the same bytes, memory, hot reads, and whether a sweep depends on live documents. */
export const files: Bench = async (context) => {
  if (context.peersOnly) return { figures: {}, bars: {} };
  const size = context.quick ? QUICK : FULL;
  return context.server.withDatabase(async (url) => {
    const { postgres, statement } = await built<typeof Postgres>('engine/postgres/index.js');
    const library = await built<typeof Files>('files/index.js');
    const engine = postgres(url, { max: 4 });
    const dir = await mkdtemp(join(tmpdir(), 'pawl-bench-files-'));
    try {
      await engine.migrate();
      return await measure(context, { engine, library, statement, dir, size });
    } finally {
      await engine.stop();
      await rm(dir, { recursive: true, force: true });
    }
  });
};

async function measure(context: Context, world: World): ReturnType<Bench> {
  const s3 = await startS3();
  try {
    const series = await interleave(context, context.rounds, 'files', {
      write_disk: writeDisk(world),
      write_s3: writeS3(world, s3.connection),
      hot_read: hotRead(world),
    });
    const once_ = await interleave(context, 1, 'files', { memory: memory(world), sweep: sweep(world, context) });
    const of = (what: string, who: string): readonly number[] => series.of(who, what);
    return {
      figures: {
        ...series.figures({ ours: 'ms', plain: 'ms', round_trip: 'ms', local: 'ms' }),
        ...once_.figures({ grown: 'MiB', pass: 's', pass_more: 's' }),
      },
      bars: {
        write_disk: atMost(1.25, ratio(of('ours', 'write_disk'), of('plain', 'write_disk'))),
        write_s3: atMost(1.15, ratio(of('ours', 'write_s3'), of('plain', 'write_s3'))),
        memory: atMost(64, median(once_.of('memory', 'grown'))),
        hot_read: atMost(
          1.1,
          median(
            of('ours', 'hot_read').map(
              (ours, i) => (ours - (of('round_trip', 'hot_read')[i] ?? 0)) / (of('local', 'hot_read')[i] ?? Number.NaN),
            ),
          ),
        ),
        sweep: atMost(2, median(once_.of('sweep', 'pass'))),
        sweep_follows: atMost(1.3, median(once_.of('sweep', 'pass_more')) / median(once_.of('sweep', 'pass'))),
      },
    };
  } finally {
    s3.stop();
  }
}

/** The median milliseconds of each call. The calls take turns, `count` times. */
async function inTurns(
  count: number,
  calls: Readonly<Record<string, () => Promise<unknown>>>,
): Promise<Record<string, number>> {
  const times = new Map<string, number[]>(Object.keys(calls).map((name) => [name, []]));
  for (let turn = -2; turn < count; turn++) {
    for (const [name, call] of Object.entries(calls)) {
      const start = performance.now();
      await call();
      if (turn >= 0) times.get(name)?.push(performance.now() - start);
    }
  }
  return Object.fromEntries([...times].map(([name, all]) => [name, median(all)]));
}

/** A write of 8 MiB to the disk store, compared with plain Node that hashes, writes and syncs as much. */
function writeDisk({ library, engine, dir, size }: World): Measure {
  return async () => {
    const bytes = randomBytes(8 * MIB);
    const files = library.createFiles(engine, { content: library.disk(join(dir, 'disk')), namespace: 'disk' });
    return inTurns(size.writes, {
      ours: () => files.write('doc', bytes),
      plain: async () => {
        createHash('sha256').update(bytes).digest('hex');
        const file = await open(join(dir, `plain-${crypto.randomUUID()}`), 'wx');
        await file.writeFile(bytes);
        await file.sync();
        await file.close();
      },
    });
  };
}

/** A write of 8 MiB to a store that speaks S3 in its own process, compared with a plain PutObject of the same SDK. */
function writeS3({ library, engine, size }: World, connection: Files.S3Options): Measure {
  return async () => {
    const bytes = randomBytes(8 * MIB);
    const { S3Client, PutObjectCommand } = createRequire(import.meta.url)('@aws-sdk/client-s3');
    const { endpoint, region, credentials, bucket } = connection;
    const client = new S3Client({ endpoint, region, credentials: { ...credentials }, forcePathStyle: true });
    const files = library.createFiles(engine, {
      content: library.s3({ ...connection, prefix: 'bench' }),
      namespace: 's3',
    });
    const times = await inTurns(size.writes, {
      ours: () => files.write('doc', bytes),
      // Each call uses a new name, as Pawl does, because a store in memory frees overwritten bytes.
      plain: () => client.send(new PutObjectCommand({ Bucket: bucket, Key: crypto.randomUUID(), Body: bytes })),
    });
    client.destroy();
    await files.stop();
    return times;
  };
}

/** A hot read of 8 MiB, and its two parts: a round trip and a read of a local file. */
function hotRead({ library, engine, dir, size, statement }: World): Measure {
  return async () => {
    const files = library.createFiles(engine, { content: library.disk(join(dir, 'disk')), namespace: 'disk' });
    const { sha256 } = await files.write('hot', randomBytes(8 * MIB));
    const hot = files.hot({ dir: join(dir, 'hot') });
    const read = async (): Promise<void> => {
      const { stream } = await hot.open('hot');
      for await (const _ of stream);
    };
    const one = statement('bench.one', 'select 1');
    await read();
    const path = join(dir, 'hot', sha256);
    return {
      ...(await inTurns(size.reads, { ours: read, round_trip: () => engine.query(one), local: () => readFile(path) })),
    };
  };
}

/** How much the process grows while a long stream is written to the disk store. */
function memory({ library, engine, dir, size }: World): Measure {
  return async () => {
    const files = library.createFiles(engine, { content: library.disk(join(dir, 'disk')), namespace: 'disk' });
    const chunk = randomBytes(64 * 1024);
    async function* stream(): AsyncGenerator<Buffer, void> {
      for (let sent = 0; sent < size.streamMiB * MIB; sent += chunk.length) yield chunk;
    }
    await files.write('warm', chunk);
    const idle = process.memoryUsage().rss;
    let most = idle;
    const watch = setInterval(() => {
      most = Math.max(most, process.memoryUsage().rss);
    }, 20);
    await files.write('long', stream());
    clearInterval(watch);
    return { grown: (most - idle) / MIB };
  };
}

/** A sweep of all old versions, and a sweep of as many old versions next to many more live documents. */
function sweep(world: World, { say }: Context): Measure {
  return async () => {
    const pass = await sweepOf(world, 'few', 0, say);
    const more = await sweepOf(world, 'many', world.size.more, say);
    return { pass, pass_more: more };
  };
}

async function sweepOf(
  { library, engine, dir, size, statement }: World,
  name: string,
  more: number,
  say: Context['say'],
): Promise<number> {
  const files = library.createFiles(engine, {
    content: library.disk(join(dir, name)),
    namespace: name,
    retain: 0,
    limits: { total: 1000 },
    pending: 60_000,
  });
  await files.probe();
  const write = async (ids: readonly string[]): Promise<void> => {
    const rest = [...ids];
    const lane = async (): Promise<void> => {
      for (let id = rest.pop(); id !== undefined; id = rest.pop()) await files.write(id, id, {});
    };
    await Promise.all([lane(), lane(), lane(), lane()]);
  };
  say(`files: filling the store "${name}"`);
  const ids = Array.from({ length: size.documents }, (_, index) => `doc-${index}`);
  for (let version = 0; version < size.versions; version++) await write(ids);
  for (const [name, text] of Object.entries(MORE)) await engine.query(statement(`bench.${name}`, text), [more]);
  await engine.query(statement('bench.analyze', 'analyze pawl.file_object'));
  const start = performance.now();
  await files.sweep();
  const condemned = performance.now() - start;
  await new Promise((resolve) => setTimeout(resolve, 1100));
  const again = performance.now();
  const { deleted } = await files.sweep();
  const seconds = (condemned + performance.now() - again) / 1000;
  if (deleted !== size.documents * (size.versions - 1)) throw new Error(`the sweep deleted ${deleted}`);
  return seconds;
}

/** Adds live documents. No sweep reads their bytes, so they have none. */
const MORE = {
  more_objects: `
insert into pawl.file_object (object, space, id, state, version, size, sha256, checks, host, pid, created_at, live_at)
select gen_random_uuid(), o.space, 'other-' || n, 'live', 1, o.size, o.sha256, o.checks, o.host, o.pid, o.created_at, o.live_at
from (select * from pawl.file_object where state = 'live' order by created_at desc limit 1) o, generate_series(1, $1::int) n`,
  more_documents: `
insert into pawl.file_document (space, id, version, object, changed_at)
select o.space, o.id, o.version, o.object, o.live_at from pawl.file_object o
where o.id like 'other-%' and $1::int > 0
on conflict do nothing`,
};

interface RunningS3 {
  readonly connection: Files.S3Options;
  stop(): void;
}

async function startS3(): Promise<RunningS3> {
  const child: ChildProcess = spawn(
    process.execPath,
    [fileURLToPath(new URL('./sides/s3-store.mjs', import.meta.url))],
    {
      stdio: ['pipe', 'pipe', 'inherit'],
    },
  );
  if (child.stdout === null) throw new Error('the store has no output');
  const [line] = await once(createInterface({ input: child.stdout }), 'line');
  return { connection: JSON.parse(String(line)) as Files.S3Options, stop: () => void child.kill() };
}
