import { randomInt, randomUUID } from 'node:crypto';
import type { Caller, Move } from './move.ts';
import { KINDS, type QueueSide, SCHEDULE } from './queue-stage.ts';

/** Before all priorities: a scan from the start. */
const START = -32_768;

interface Outcomes {
  readonly whole?: readonly number[];
  readonly fail?: readonly object[];
  readonly key?: { readonly key: string; readonly epoch: number };
}

function settle({ one }: Caller, { queue, worker }: QueueSide, { whole = [], fail, key }: Outcomes): Promise<unknown> {
  return one('select pawl.queue_settle($1::smallint, 0::smallint, $2, $3, null, $4, null, $5, $6)', [
    queue,
    worker,
    whole,
    fail === undefined ? null : JSON.stringify(fail),
    key === undefined ? null : [key.key],
    key === undefined ? null : [key.epoch],
  ]);
}

/** The second job of a worker, as a client that pulled it names it. */
function pulled(
  { one }: Caller,
  { worker, running: [, job] }: QueueSide,
  name: string,
  what: string,
  rest = '',
): Promise<unknown> {
  return one(
    `select pawl.${name}(($4::jsonb || jsonb_build_object('shard', 0, 'worker', $1::bigint, 'claim', $2::bigint, 'job', $3::bigint,
      'process', (select r.process_id from pawl.queue_running r where r.shard = 0 and r.id = $2)))::json${rest})`,
    [worker, job.claim, job.id, what],
  );
}

function enqueue({ one }: Caller, { name }: QueueSide, rest: object): Promise<unknown> {
  return one('select pawl.enqueue($1::jsonb)', [JSON.stringify({ queue: name, kind: 'job', payload: {}, ...rest })]);
}

function add({ one }: Caller, { queue, kind }: QueueSide, name: string, key: string | null): Promise<unknown> {
  const text = `select pawl.${name}($1::smallint, 0::smallint, $2::smallint, 0::smallint, '1'::json, $3, null)`;
  return one(text, [queue, kind, key]);
}

/** A key that is this side's, and one that is new. */
function addUnique({ one }: Caller, { queue, key }: QueueSide): Promise<unknown> {
  const text = `
select pawl.queue_add_unique(json_build_array(json_build_object('queue', 'pawl'::regnamespace::oid::bigint * 65536 + $1::bigint, 'n', 2,
  'shards', '[0]'::json, 'kinds', json_build_array(k.id), 'priorities', '[0]'::json, 'keys', json_build_array($2::text, $3::text),
  'rules', json_build_array(json_build_object('kind', k.id, 'by', 'key', 'while', 'outstanding'))), '[1,2]'::json))
from pawl.queue_kind k where k.queue = $1 and k.name = 'single'`;
  return one(text, [queue, key, randomUUID()]);
}

/** A process of this side waits for jobs. */
function wait({ worker }: QueueSide, one: Caller['one'], ids: readonly number[]): Promise<unknown> {
  return one(`select pawl.queue_wait('pawl_wait_' || $1, 60000, $2, '{}', '{}')`, [worker, ids]);
}

function change({ one }: Caller, { name }: QueueSide, call: string, id: number, rest: object): Promise<unknown> {
  return one(`select pawl.${call}($1::jsonb)`, [JSON.stringify({ queue: name, id: String(id), ...rest })]);
}

function node(queue: string, waits: object): object {
  const policy = { afterError: 'error', afterCancel: 'cancel' };
  return {
    queue,
    shard: 0,
    n: 1,
    kinds: ['job'],
    priorities: [0],
    after: [],
    jobs: [],
    batches: [],
    ...waits,
    ...policy,
  };
}

/** A batch of one job. Answers its id. */
async function newBatch({ one }: Caller, { name, kind, queue }: QueueSide): Promise<unknown> {
  const batch = await one('select pawl.queue_batch_new($1)', [JSON.stringify({ queue: name, callbacks: {} })]);
  const schema = await one(`select 'pawl'::regnamespace::oid::bigint`, []);
  const head = { queue: Number(schema) * 65_536 + queue, shard: 0, n: 1, kinds: [kind], priorities: [0] };
  await one('select pawl.queue_batch_add($1)', [JSON.stringify([Number(batch), [head, [1]]])]);
  return batch;
}

/** Every call of the queue that writes. Where a move names a job or a key, it is one of its side. */
export const QUEUE_MOVES: readonly Move<QueueSide>[] = [
  // Producers.
  {
    name: 'enqueue',
    functions: ['enqueue'],
    open: 'transaction',
    run: (caller, side) => enqueue(caller, side, {}),
  },
  {
    name: 'enqueue with a key',
    functions: ['enqueue'],
    open: 'transaction',
    run: (caller, side) => enqueue(caller, side, { key: side.key }),
  },
  {
    name: 'enqueue of a unique kind',
    functions: ['enqueue'],
    open: 'transaction',
    run: (caller, side) => enqueue(caller, side, { kind: 'once', key: side.key }),
  },
  {
    name: 'enqueue of a kind of which one is outstanding',
    functions: ['enqueue'],
    open: 'transaction',
    run: (caller, side) => enqueue(caller, side, { kind: 'single', key: side.key }),
  },
  {
    name: 'enqueue that replaces a job',
    functions: ['enqueue'],
    open: 'transaction',
    run: (caller, side) => enqueue(caller, side, { kind: 'newest', key: side.key }),
  },
  {
    name: 'enqueue of many of such a kind',
    functions: ['queue_add_unique'],
    open: 'transaction',
    run: addUnique,
  },
  {
    name: 'enqueue with a group',
    functions: ['enqueue'],
    open: 'transaction',
    run: (caller, side) => enqueue(caller, side, { group: side.group }),
  },
  {
    name: 'enqueue of one',
    functions: ['queue_add_one'],
    open: 'transaction',
    run: (caller, side) => add(caller, side, 'queue_add_one', side.key),
  },
  {
    name: 'enqueue of one by itself',
    functions: ['queue_add_alone'],
    open: 'statement',
    run: (caller, side) => add(caller, side, 'queue_add_alone', side.key),
  },
  {
    name: 'enqueue of one that is waited for',
    functions: ['queue_add_awaited'],
    open: 'statement',
    run: ({ one }, { queue, kind, key, worker }) =>
      one(
        `select pawl.queue_add_awaited($1::smallint, 0::smallint, $2::smallint, 0::smallint, '1'::json, $3, null, null, null, 'pawl_wait_' || $4)`,
        [queue, kind, key, worker],
      ),
  },
  {
    name: 'enqueue of many',
    functions: ['queue_add', 'queue_add_json'],
    open: 'transaction',
    run: ({ one }, { queue, kind, key }) =>
      one(
        `select pawl.queue_add($1::smallint, 0::smallint, 3, $2::smallint[], '{0,0,0}'::smallint[], '[1,2,3]'::json, $3, null)`,
        [queue, [kind, kind, kind], [key, key, null]],
      ),
  },
  // Workers under a lease.
  {
    name: 'claim',
    functions: ['queue_claim'],
    open: 'statement',
    run: ({ one }, { queue, worker }) =>
      one('select pawl.queue_claim($1::smallint, 0::smallint, $2, 10, 10, 100, 32, $3::smallint, 0)', [
        queue,
        worker,
        START,
      ]),
  },
  {
    name: 'claim of groups with a rate',
    functions: ['queue_claim'],
    open: 'statement',
    run: ({ one }, { rated }) =>
      one('select pawl.queue_claim($1::smallint, 0::smallint, $2, 10, 10, 100, 32, $3::smallint, 0)', [
        rated.queue,
        rated.worker,
        START,
      ]),
  },
  {
    name: 'claim or offer',
    functions: ['queue_claim'],
    open: 'statement',
    run: ({ one }, { queue, worker }) =>
      one(
        `select pawl.queue_claim($1::smallint, 0::smallint, $2, 10, 10, 100, 32, $3::smallint, 0, $4, 'pawl_nobody')`,
        [queue, worker, START, randomInt(2 ** 40)],
      ),
  },
  {
    name: 'settle complete jobs',
    functions: ['queue_settle'],
    open: 'statement',
    run: (caller, side) => settle(caller, side, { whole: [side.running[0].claim] }),
  },
  {
    name: 'settle a job that another one comes after',
    functions: ['queue_settle'],
    open: 'statement',
    run: (caller, side) => settle(caller, side, { whole: [side.parent.claim] }),
  },
  {
    name: 'settle a job of a group',
    functions: ['queue_settle'],
    open: 'statement',
    run: (caller, side) => settle(caller, side, { whole: [side.placed.claim] }),
  },
  {
    name: 'settle a failed job of a group',
    functions: ['queue_settle'],
    open: 'statement',
    run: (caller, side) => settle(caller, side, { fail: [{ ...failed(side.placed), to: 'retry', wait: 1000 }] }),
  },
  {
    name: 'settle a failed job of a group with a rate',
    functions: ['queue_settle'],
    open: 'statement',
    run: (caller, side) =>
      settle(caller, { ...side, ...side.rated }, { fail: [{ ...failed(side.rated), to: 'retry', wait: 0 }] }),
  },
  {
    name: 'settle a failed job of a claim',
    functions: ['queue_settle'],
    open: 'statement',
    run: (caller, side) => settle(caller, side, { fail: [{ ...failed(side.running[0]), to: 'retry', wait: 1 }] }),
  },
  {
    name: 'settle and give up a key',
    functions: ['queue_settle'],
    open: 'statement',
    run: (caller, side) => settle(caller, side, { whole: [side.keyed.claim], key: side.keyed }),
  },
  // Clients that pull.
  {
    name: 'pull',
    functions: ['queue_pull'],
    open: 'statement',
    run: ({ one }, { queue }) =>
      one(`select pawl.queue_pull($1::smallint, 0::smallint, 10, 60000, 'test', 1)`, [queue]),
  },
  {
    name: 'settle a pulled job',
    functions: ['queue_settle_pulled'],
    open: 'statement',
    run: (caller, side) => pulled(caller, side, 'queue_settle_pulled', '{"to":"retry","wait":1}'),
  },
  {
    name: 'extend the lease of a pulled job',
    functions: ['queue_extend'],
    open: 'statement',
    run: (caller, side) => pulled(caller, side, 'queue_extend', '{}', ', 60000'),
  },
  {
    name: 'guard',
    functions: ['queue_guard'],
    open: 'transaction',
    run: ({ one }, { running: [job] }) => one('select pawl.queue_guard($1)', [JSON.stringify([{ shard: 0, ...job }])]),
  },
  {
    name: 'progress',
    functions: ['queue_progress'],
    open: 'statement',
    run: ({ one }, { running: [job] }) =>
      one('select pawl.queue_progress($1)', [JSON.stringify([{ shard: 0, ...job }, 50])]),
  },
  {
    name: 'beat',
    functions: ['queue_beat'],
    open: 'statement',
    run: ({ one }, { worker }) =>
      one('select pawl.queue_beat($1)', [JSON.stringify([{ worker, wantsNotify: true, holding: [] }])]),
  },
  {
    name: 'want to be notified',
    functions: ['queue_set_wants_notify'],
    open: 'statement',
    run: ({ one }, { worker }) => one('select pawl.queue_set_wants_notify($1, false)', [worker]),
  },
  {
    name: 'offer',
    functions: ['queue_offer_add'],
    open: 'statement',
    run: ({ one }, { queue, worker }) =>
      one(`select pawl.queue_offer_add($1::smallint, $2, $3, 'pawl_nobody')`, [queue, worker, randomInt(2 ** 40)]),
  },
  {
    name: 'withdraw offers',
    functions: ['queue_withdraw'],
    open: 'statement',
    run: ({ one }, { queue, worker }) => one('select pawl.queue_withdraw($1::smallint, $2)', [queue, worker]),
  },
  {
    name: 'recall',
    functions: ['queue_recall'],
    open: 'statement',
    run: ({ one }, { queue, worker }) => one(`select pawl.queue_recall($1::smallint, $2, '{}')`, [queue, worker]),
  },
  {
    name: 'leave',
    functions: ['queue_leave'],
    open: 'statement',
    run: ({ one }, { queue, worker }) => one(`select pawl.queue_leave($1::smallint, $2, '{}')`, [queue, worker]),
  },
  // Workers that hold a job by its transaction.
  {
    name: 'take a job in a held transaction',
    functions: ['queue_claim_one'],
    open: 'transaction',
    isHalf: true,
    run: ({ one }, { queue, worker }) =>
      one('select pawl.queue_claim_one($1::smallint, 0::smallint, $2, 100, $3::smallint, 0)', [queue, worker, START]),
  },
  {
    name: 'take a read-ahead job in a held transaction',
    functions: ['queue_take_row'],
    open: 'transaction',
    isHalf: true,
    run: ({ one }, { queue }) =>
      one(
        `select pawl.queue_take_row($1::smallint, 0::smallint, r.id, r.ctid, r.xmin, true)
        from pawl.queue_ready r where r.queue = $1 and r.key is null and r.n = 1 order by r.priority, r.id limit 1`,
        [queue],
      ),
  },
  {
    name: 'tidy before a held transaction',
    functions: ['queue_unblock_claim'],
    open: 'statement',
    run: async ({ one }, { queue }) => {
      for (const what of ['due', 'places', 'run', 'keys']) {
        await one('select pawl.queue_unblock_claim($1::smallint, 0::smallint, $2, 100, $3::smallint, 0)', [
          queue,
          what,
          START,
        ]);
      }
    },
  },
  {
    name: 'read ahead for held transactions',
    functions: ['queue_peek_ready'],
    open: 'statement',
    run: ({ one }, { queue, worker }) =>
      one('select pawl.queue_peek_ready($1::smallint, 0::smallint, $2, 100, $3::smallint, 0)', [queue, worker, START]),
  },
  {
    name: 'charge the loss of a held transaction',
    functions: ['queue_charge'],
    open: 'statement',
    run: ({ one }, { queue, worker, ready }) =>
      one('select pawl.queue_charge($1)', [
        JSON.stringify({
          queue,
          shard: 0,
          worker,
          ids: [ready],
          attempts: null,
          ends: false,
          reason: 'lost',
          error: 'lost',
        }),
      ]),
  },
  // Chores.
  {
    name: 'rescue',
    functions: ['queue_rescue'],
    open: 'statement',
    run: ({ one }, { queue }) => one('select pawl.queue_rescue($1::smallint)', [queue]),
  },
  {
    name: 'prune',
    functions: ['queue_prune'],
    open: 'statement',
    run: ({ one }, { queue }) => one('select pawl.queue_prune($1::smallint, 1000)', [queue]),
  },
  {
    name: 'prune traces',
    functions: ['queue_trace_prune'],
    open: 'statement',
    run: ({ one }) => one('select pawl.queue_trace_prune(1000)'),
  },
  {
    name: 'sweep cancels',
    functions: ['queue_sweep_cancels'],
    open: 'statement',
    run: ({ one }, { queue }) => one('select pawl.queue_sweep_cancels($1::smallint)', [queue]),
  },
  // Who waits for jobs.
  {
    name: 'wait for jobs',
    functions: ['queue_wait'],
    open: 'statement',
    run: ({ one }, side) => wait(side, one, [side.running[0].id, side.ready, side.dead]),
  },
  {
    name: 'wait no more',
    functions: ['queue_wait_end'],
    open: 'statement',
    run: async ({ one }, side) => {
      await wait(side, one, [side.running[0].id]);
      return one(`select pawl.queue_wait_end('pawl_wait_' || $1)`, [side.worker]);
    },
  },
  {
    name: 'end a job that is waited for',
    functions: ['queue_ended_alone'],
    open: 'statement',
    run: async ({ one }, side) => {
      await wait(side, one, [side.ready]);
      return one('select pawl.queue_ended_alone(0::smallint, $1, pawl.queue_id($2))', [side.ready, side.name]);
    },
  },
  {
    name: 'look for ends that watches missed',
    functions: ['queue_look'],
    open: 'statement',
    run: ({ one }) => one('select pawl.queue_look(100)'),
  },
  {
    name: 'enqueue of one that comes after others',
    functions: ['enqueue'],
    open: 'transaction',
    run: (caller, side) => enqueue(caller, side, { after: [String(side.ready), String(side.dead)], afterError: 'run' }),
  },
  {
    name: 'enqueue of a flow',
    functions: ['queue_add_flow'],
    open: 'transaction',
    run: ({ one }, { name, ready }) =>
      one('select pawl.queue_add_flow($1)', [
        JSON.stringify([
          [node(name, { jobs: [ready] }), node(name, { after: [0] })],
          [['1'], ['2']],
          [null, null],
        ]),
      ]),
  },
  {
    name: 'add to a batch',
    functions: ['queue_batch_new', 'queue_batch_add'],
    open: 'transaction',
    run: (caller, side) => newBatch(caller, side),
  },
  {
    name: 'seal a batch',
    functions: ['queue_batch_seal'],
    open: 'statement',
    run: async (caller, side) => caller.one('select pawl.queue_batch_seal($1)', [await newBatch(caller, side)]),
  },
  {
    name: 'sweep watches',
    functions: ['queue_sweep_watches'],
    open: 'statement',
    run: ({ one }) => one('select pawl.queue_sweep_watches()'),
  },
  {
    name: 'index for search',
    functions: ['queue_index'],
    open: 'statement',
    run: ({ one }) => one('select pawl.queue_index(10)'),
  },
  {
    name: 'tick of a schedule',
    functions: ['queue_tick'],
    open: 'statement',
    run: ({ one }, { queue, schedule }) =>
      one('select pawl.queue_tick($1)', [
        JSON.stringify({
          queue,
          name: schedule,
          cron: SCHEDULE.cron,
          seen: SCHEDULE.next,
          ticks: [SCHEDULE.next],
          next: 2000,
        }),
      ]),
  },
  // Operators.
  {
    name: 'cancel a waiting job',
    functions: ['queue_cancel_job'],
    open: 'statement',
    run: ({ one }, { name, ready }) => one(`select pawl.queue_cancel_job($1, $2, 'why')`, [name, ready]),
  },
  {
    name: 'cancel a job that waits for a place',
    functions: ['queue_cancel_job'],
    open: 'statement',
    run: ({ one }, { name, lined }) => one(`select pawl.queue_cancel_job($1, $2, 'why')`, [name, lined]),
  },
  {
    name: 'cancel a job that is about to be admitted',
    functions: ['queue_cancel_job'],
    open: 'statement',
    run: ({ one }, { name, admissible }) => one(`select pawl.queue_cancel_job($1, $2, 'why')`, [name, admissible]),
  },
  {
    name: 'cancel a running job',
    functions: ['queue_cancel_job'],
    open: 'statement',
    run: ({ one }, { name, running: [job] }) => one(`select pawl.queue_cancel_job($1, $2, 'why')`, [name, job.id]),
  },
  {
    name: 'cancel a parked job',
    functions: ['queue_cancel_job'],
    open: 'statement',
    run: ({ one }, { name, keyed }) => one(`select pawl.queue_cancel_job($1, $2, 'why')`, [name, keyed.behind]),
  },
  {
    name: 'retry a job in error',
    functions: ['queue_retry_job'],
    open: 'statement',
    run: ({ one }, { name, dead }) => one('select pawl.queue_retry_job($1, $2)', [name, dead]),
  },
  {
    name: 'cancel a parked job in a transaction',
    functions: ['cancel'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'cancel', side.keyed.behind, {}),
  },
  {
    name: 'retry a delayed job in a transaction',
    functions: ['retry'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'retry', side.delayed, {}),
  },
  {
    name: 'cancel a job that comes after others',
    functions: ['cancel'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'cancel', side.child, {}),
  },
  {
    name: 'cancel a job that another one comes after',
    functions: ['cancel'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'cancel', side.waitingParent, {}),
  },
  {
    name: 'finish a job that another one comes after',
    functions: ['finish'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'finish', side.waitingParent, {}),
  },
  {
    name: 'update a job that comes after others',
    functions: ['update'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'update', side.child, { payload: 2 }),
  },
  {
    name: 'finish a waiting job by hand',
    functions: ['finish'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'finish', side.ready, {}),
  },
  {
    name: 'finish a job in error by hand',
    functions: ['finish'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'finish', side.dead, { result: 1 }),
  },
  {
    name: 'skip a job that blocks its key',
    functions: ['skip'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'skip', side.blocker, {}),
  },
  {
    name: 'retry a job that blocks its key',
    functions: ['retry'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'retry', side.blocker, {}),
  },
  {
    name: 'redrive a dead letter',
    functions: ['redrive'],
    open: 'transaction',
    run: async (caller, side) => {
      const payload = { job: String(side.dead) };
      const letter = (await enqueue(caller, side, { kind: 'letter', payload })) as { id: string };
      return change(caller, side, 'redrive', Number(letter.id), {});
    },
  },
  {
    name: 'update a waiting job',
    functions: ['update'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'update', side.ready, { payload: 2 }),
  },
  {
    name: 'update a job that waits for a place',
    functions: ['update'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'update', side.lined, { priority: -1 }),
  },
  {
    name: 'put off a parked job',
    functions: ['update'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'update', side.keyed.behind, { delay: '1 hour' }),
  },
  {
    name: 'update a parked job',
    functions: ['update'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'update', side.keyed.behind, { payload: 2 }),
  },
  {
    name: 'erase a job that ended',
    functions: ['erase'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'erase', side.dead, {}),
  },
  {
    name: 'retry many',
    functions: ['queue_change_many'],
    open: 'statement',
    run: ({ one }, { name, dead }) => one(`select pawl.queue_change_many($1, 'retry', $2)`, [name, [dead]]),
  },
  {
    name: 'move a waiting job',
    functions: ['move'],
    open: 'transaction',
    run: (caller, side) => change(caller, side, 'move', side.ready, { to: side.other }),
  },
  {
    name: 'take ends to be told',
    functions: ['queue_lend_untold'],
    open: 'statement',
    run: ({ one }, { queue }) => one('select pawl.queue_lend_untold($1::smallint)', [queue]),
  },
  {
    name: 'have told ends',
    functions: ['queue_end_untold'],
    open: 'statement',
    run: ({ one }, { queue }) =>
      one('select pawl.queue_end_untold($1::smallint, array[1], clock_timestamp())', [queue]),
  },
  {
    name: 'begin to remove a queue',
    functions: ['queue_remove_begin'],
    open: 'statement',
    run: ({ one }, { name }) => one('select pawl.queue_remove_begin($1, true)', [name]),
  },
  {
    name: 'remove jobs of a queue',
    functions: ['queue_remove_step'],
    open: 'statement',
    run: ({ one }, { queue }) => one('select pawl.queue_remove_step($1::smallint, true, 1000)', [queue]),
  },
  {
    name: 'end the removal of a queue',
    functions: ['queue_remove_end'],
    open: 'statement',
    run: ({ one }, { queue }) => one('select pawl.queue_remove_end($1::smallint, true)', [queue]),
  },
  {
    name: 'take a job out of its run',
    functions: ['queue_isolate'],
    open: 'statement',
    run: ({ one }, { name, ready }) =>
      one('select pawl.queue_isolate($1::jsonb)', [JSON.stringify({ queue: name, id: String(ready) })]),
  },
  {
    name: 'pause',
    functions: ['queue_pause'],
    open: 'statement',
    run: ({ one }, { name }) => one('select pawl.queue_pause($1)', [name]),
  },
  {
    name: 'resume',
    functions: ['queue_resume'],
    open: 'statement',
    run: ({ one }, { name }) => one('select pawl.queue_resume($1)', [name]),
  },
  {
    name: 'pause a part',
    functions: ['queue_pause_part'],
    open: 'statement',
    run: ({ one }, { name }) => one(`select pawl.queue_pause_part($1, null, 'nobody', null)`, [name]),
  },
  {
    name: 'resume a part',
    functions: ['queue_resume_part', 'queue_bring_back'],
    open: 'statement',
    run: async ({ one }, { name }) => {
      await one(`select pawl.queue_pause_part($1, null, 'nobody', null)`, [name]);
      return one(`select pawl.queue_resume_part($1, null, 'nobody', null, 1000)`, [name]);
    },
  },
  {
    name: 'release a worker',
    functions: ['queue_release_worker'],
    open: 'statement',
    run: ({ one }, { lost }) => one('select pawl.queue_release_worker($1)', [lost.worker]),
  },
  {
    name: 'wake',
    functions: ['queue_wake'],
    open: 'statement',
    run: ({ one }, { queue }) => one('select pawl.queue_wake($1::smallint)', [queue]),
  },
  {
    name: 'register',
    functions: ['queue_register'],
    open: 'statement',
    run: ({ one }, { name }) => one('select pawl.queue_register($1)', [JSON.stringify(declaration(name, 1))]),
  },
  {
    name: 'register with other shards',
    functions: ['queue_register'],
    open: 'statement',
    run: ({ one }, { name }) => one('select pawl.queue_register($1)', [JSON.stringify(declaration(name, 2))]),
  },
  {
    name: 'set a schedule',
    functions: ['queue_set_schedule'],
    open: 'statement',
    run: ({ one }, { name, schedule }) =>
      one('select pawl.queue_set_schedule($1)', [JSON.stringify({ queue: name, name: schedule, ...SCHEDULE })]),
  },
  {
    name: 'publish',
    functions: ['queue_publish'],
    open: 'transaction',
    run: ({ one }, { name, key }) =>
      one('select pawl.queue_publish($1)', [JSON.stringify({ topic: `topic of ${name}`, payload: {}, key })]),
  },
  {
    name: 'subscribe',
    functions: ['queue_subscribe'],
    open: 'statement',
    run: ({ one }, { name }) => one(`select pawl.queue_subscribe($1, $2, 'job', true)`, [`topic of ${name}`, name]),
  },
  {
    name: 'set all schedules',
    functions: ['queue_set_schedules'],
    open: 'statement',
    run: ({ one }, { name, schedule }) =>
      one('select pawl.queue_set_schedules($1)', [
        JSON.stringify({ queue: name, version: 1, schedules: [{ queue: name, name: schedule, ...SCHEDULE }] }),
      ]),
  },
];

function failed({ claim, id }: { claim: number; id: number }): { claim: number; id: number } {
  return { claim, id };
}

function declaration(name: string, shards: number): object {
  const kind = { unique: false, coalesce: 'none', after: [], afterError: 'run', attempts: null };
  return {
    name,
    shards,
    keyed: true,
    attempts: 3,
    perGroup: 1,
    history: null,
    kinds: KINDS.map((own) => ({ ...kind, ...own })),
  };
}
