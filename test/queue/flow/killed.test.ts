import { afterAll, beforeAll, expect, test } from 'vitest';
import { plantSql } from '../../faults/plants/plant.ts';
import { freshDatabase } from '../../support/database.ts';
import { MODELS } from '../../support/long.ts';
import { breaches } from '../invariants.ts';
import { type ClaimedJob, type QueueRow, SqlSession } from '../sql-session.ts';

/** Ends a backend of a victim that is the nth to write a statement into a table of Pawl's. The sequence counts what is rolled back, too. */
const KILLER = `
create sequence public.test_point;
create table public.test_target (n bigint);
insert into public.test_target values (0);
create function public.test_kill() returns trigger language plpgsql as $$
begin
  if current_setting('application_name') = 'victim' and nextval('public.test_point') = (select t.n from public.test_target t) then
    perform pg_terminate_backend(pg_backend_pid());
    perform pg_sleep(60);
  end if;
  return null;
end $$;
do $$
declare
  v_table text;
begin
  for v_table in select format('%I.%I', n.nspname, c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'pawl' and c.relname like 'queue\\_%' and c.relkind = 'r'
  loop
    execute format('create trigger test_kill after insert or update or delete on %s for each statement execute function public.test_kill()', v_table);
  end loop;
end $$;`;

let url: string;
let eye: SqlSession;
let session: SqlSession;
let queue: QueueRow;
let workers: [number, number];
let schema: number;

beforeAll(async () => {
  ({ url } = await freshDatabase());
  eye = await SqlSession.open(url);
  session = await openVictim();
  const kinds = [{ name: 'job', attempts: 1, onError: 'letter' }, { name: 'letter' }, { name: 'called' }];
  queue = await eye.register('killed', kinds);
  workers = [await eye.addWorker(queue.queue), await eye.addWorker(queue.queue)];
  schema = Number(await eye.one(`select 'pawl'::regnamespace::oid::bigint`));
  await eye.client.query(KILLER);
});

afterAll(() => Promise.all([eye.end(), session.end()]));

function openVictim(): Promise<SqlSession> {
  return SqlSession.open(`${url}?application_name=victim`);
}

/** Carries out a step that is one transaction, and once more when its backend was ended. Answers what the step does. */
async function survive<T>(step: (session: SqlSession) => Promise<T>): Promise<T> {
  try {
    return await step(session);
  } catch (error) {
    if ((error as { code?: string }).code !== '57P01') throw error;
    session = await openVictim();
    return step(session);
  }
}

function newBatch(parent: number | null, payload: string): Promise<number> {
  const callbacks = { onDone: { queue: 'killed', kind: 'called', payload } };
  return survive(async (by) =>
    Number(await by.one('select pawl.queue_batch_new($1)', [JSON.stringify({ queue: 'killed', callbacks, parent })])),
  );
}

function addTo(batch: number): Promise<number> {
  const head = { queue: schema * 65_536 + queue.queue, shard: 0, n: 1, kinds: [queue.kinds['job']], priorities: [0] };
  return survive(async (by) => {
    const added = await by.one<string>('select array_to_json(pawl.queue_batch_add($1))::text', [
      JSON.stringify([batch, [head, [0]]]),
    ]);
    return (JSON.parse(added) as number[])[0] ?? -1;
  });
}

/** A child of a job, which ends with it, and another job that comes after the child. */
function addFlow(parent: number): Promise<number[]> {
  const group = { queue: 'killed', shard: 0, n: 1, kinds: ['job'], priorities: [0], batches: [], afterCancel: 'run' };
  const groups = [
    { ...group, after: [], jobs: [parent], afterError: 'error' },
    { ...group, after: [0], jobs: [], afterError: 'run' },
  ];
  return survive(async (by) => {
    const added = await by.one<string>('select array_to_json(pawl.queue_add_flow($1::json))::text', [
      JSON.stringify([groups, [[1], [2]], [null, null]]),
    ]);
    return JSON.parse(added) as number[];
  });
}

interface Story {
  /** Of the inner batch and fails, and of the outer one. */
  readonly members: readonly [number, number];
  readonly child: number;
  readonly grandchild: number;
  readonly afterAll: number;
  /** How many jobs could be claimed while the second member was running still. */
  readonly early: number;
}

async function play(): Promise<Story> {
  const outer = await newBatch(null, 'outer');
  const inner = await newBatch(outer, 'inner');
  const members = [await addTo(inner), await addTo(outer)] as const;
  const [child = -1, grandchild = -1] = await addFlow(members[0]);
  const afterAll = await survive(async (by) => {
    const request = {
      queue: 'killed',
      kind: 'job',
      after: [String(members[0]), { batch: String(outer) }],
      afterError: 'run',
    };
    return Number((await by.one<{ id: string }>('select pawl.enqueue($1)', [JSON.stringify(request)])).id);
  });
  const [first, second] = [await claim(members[0]), await claim(members[1])];
  for (const batch of [outer, inner]) await survive((by) => by.one('select pawl.queue_batch_seal($1)', [batch]));
  const fail = [{ claim: first.claim, id: first.id, to: 'error' as const, error: 'it fails' }];
  await survive((by) => by.settle(queue.queue, workers[0], { fail }));
  const early = await eye.one<number>('select count(*)::int from pawl.queue_ready');
  await survive((by) => by.settle(queue.queue, workers[0], { whole: [second.claim] }));
  return { members, child, grandchild, afterAll, early };
}

async function claim(id: number): Promise<ClaimedJob> {
  const [job] = (await eye.claim(queue.queue, workers[0], { limit: 1 })).jobs;
  if (job?.id !== id) throw new Error(`job ${id} was to be claimed, and it was ${job?.id}`);
  return job;
}

/** Everything of a story that a reader sees: exactly this, wherever the backend was ended. */
async function outcomeOf({ members, child, grandchild, afterAll: last, early }: Story): Promise<object> {
  const status = (id: number): Promise<string> => eye.one('select pawl.queue_status(0::smallint, $1)', [id]);
  const left = (await eye.claim(queue.queue, workers[1], { limit: 100 })).jobs;
  const payloads = await eye.one<readonly string[]>(
    `select json_agg(case when j.kind = $2 then to_json(j.payload ->> 'job') else j.payload end order by j.id) from pawl.queue_job j where j.id = any ($1) and j.kind <> $3`,
    [left.map(({ id }) => id), queue.kinds['letter'], queue.kinds['job']],
  );
  const jobs = left.filter(({ kind }) => kind === queue.kinds['job']).map(({ id }) => id);
  const outcome = {
    early,
    statuses: [await status(members[0]), await status(members[1]), await status(child)],
    claimable: jobs.toSorted((a, b) => a - b).map((id) => ({ [grandchild]: 'grandchild', [last]: 'after all' })[id]),
    others: payloads.toSorted((a, b) => a.localeCompare(b)).map((text) => text.replace(/^\d+$/, 'letter')),
    parts: await eye.one('select count(*)::int from pawl.queue_watch_part'),
    breaches: await breaches(eye.client),
  };
  await eye.complete(queue.queue, workers[1], left);
  return outcome;
}

/** Early are the callback of the inner batch, two letters and the grandchild. */
const EXPECTED = {
  early: 4,
  statuses: ['error', 'complete', 'error'],
  claimable: ['grandchild', 'after all'],
  others: ['letter', 'letter', 'inner', 'outer'],
  parts: 0,
  breaches: [],
};

test('J1, J2, J4: a flow, its batches and their callbacks are the same wherever a backend is ended', {
  timeout: 120_000,
}, async () => {
  let points = 0;
  for (let target = 1; ; target += MODELS ? 1 : 7) {
    await eye.client.query(`select setval('public.test_point', 1, false)`);
    await eye.client.query('update public.test_target set n = $1', [target]);
    const before = session.pid;
    const story = await play();
    await eye.client.query('update public.test_target set n = 0');
    expect(await outcomeOf(story), `ended at statement ${target}`).toEqual(EXPECTED);
    if (session.pid === before) break;
    points = target;
  }
  // Fewer would not be all of them.
  expect(points).toBeGreaterThan(40);
});

interface Plant {
  readonly name: string;
  readonly fn: string;
  readonly from: RegExp | string;
  readonly to: string;
}

test.for<Plant>([
  {
    name: 'a watch is over while a part of it is left',
    fn: 'queue_over',
    from: 'and not exists (select 1 from pawl.queue_watch_part p where p.watch = w.id offset 0)',
    to: '',
  },
  {
    name: 'a batch is over while a part of it is left',
    fn: 'queue_batches_over',
    from: /or exists \(select 1 from pawl.queue_watch_part p where p.watch = v_batch\)/,
    to: '',
  },
  {
    name: 'a settlement does not look who waits',
    fn: 'queue_settle',
    from: 'p_queue = any (pawl.queue_ended(p_shard, v_ended))',
    to: 'false',
  },
  {
    name: 'a letter is left twice',
    fn: 'queue_fail',
    from: 'perform pawl.queue_dead_letters(p_shard, v_dead);',
    to: 'perform pawl.queue_dead_letters(p_shard, v_dead || v_dead);\nperform pawl.queue_dead_letters(p_shard, v_dead);',
  },
  {
    name: 'a callback is enqueued twice',
    fn: 'queue_batch_call',
    from: "'onDone'] loop",
    to: "'onDone', 'onDone'] loop",
  },
  {
    name: 'a child does not end with its parent',
    fn: 'queue_let_go',
    from: "if v_fate.fate = 'run' then",
    to: 'if true then',
  },
])('the story is another one where $name', async ({ fn, from, to }) => {
  const right = await eye.one<string>('select pg_get_functiondef(p.oid) from pg_proc p where p.proname = $1', [fn]);
  await plantSql(eye.client, fn, (source) => source.replace(from, to));
  try {
    expect(await outcomeOf(await play())).not.toEqual(EXPECTED);
  } finally {
    await eye.client.query(right);
    await eye.client.query(
      'truncate pawl.queue_watch, pawl.queue_watch_part, pawl.queue_batch_part, pawl.queue_child, pawl.queue_delayed',
    );
  }
});
