import { randomInt } from 'node:crypto';
import { type ActorSide, question, type Turn, TYPE } from './actor-stage.ts';
import type { Caller, Move } from './move.ts';

function create({ one }: Caller, { typeName }: ActorSide, rest: object): Promise<unknown> {
  const head = { type: typeName, state: 'on', version: 1, ...rest };
  return one('select pawl.actor_create_json($1)', [JSON.stringify([head, {}])]);
}

function signal({ one }: Caller, name: string, actor: number): Promise<unknown> {
  return one(`select pawl.${name}($1)`, [JSON.stringify({ actor, semaphore: 'go' })]);
}

function send({ one }: Caller, name: string, actor: number): Promise<unknown> {
  return one(`select pawl.${name}($1)`, [JSON.stringify([{ actor, name: 'hello' }, {}])]);
}

function commit({ one }: Caller, { actor, epoch, worker }: Turn, kind: string, to: string | null): Promise<unknown> {
  return one(
    `select pawl.actor_commit($1, $2, $3, $4, null, array['on'], $5, null, null, null, null, null, null, null, null)`,
    [worker, [actor], [epoch], [kind], to === null ? null : [to]],
  );
}

/** Every call of the actors that writes. Where a move names an actor, it is one of its side. */
export const ACTOR_MOVES: readonly Move<ActorSide>[] = [
  // Clients that have something for an actor.
  {
    name: 'create',
    functions: ['actor_create', 'actor_create_json'],
    open: 'transaction',
    run: (caller, side) => create(caller, side, {}),
  },
  {
    name: 'create with a key',
    functions: ['actor_create', 'actor_create_json'],
    open: 'transaction',
    run: (caller, side) => create(caller, side, { key: side.page }),
  },
  {
    name: 'create a child',
    functions: ['actor_create', 'actor_create_json'],
    open: 'transaction',
    run: (caller, side) => create(caller, side, { parent: String(side.idle) }),
  },
  {
    name: 'raise a semaphore of an idle actor',
    functions: ['actor_incr'],
    open: 'transaction',
    run: (caller, { idle }) => signal(caller, 'actor_incr', idle),
  },
  {
    name: 'raise a semaphore of a running actor',
    functions: ['actor_incr'],
    open: 'transaction',
    run: (caller, { running }) => signal(caller, 'actor_incr', running.actor),
  },
  {
    name: 'raise a semaphore by itself',
    functions: ['actor_incr_alone'],
    open: 'statement',
    run: (caller, { idle }) => signal(caller, 'actor_incr_alone', idle),
  },
  {
    name: 'send a message',
    functions: ['actor_send', 'actor_send_json'],
    open: 'transaction',
    run: (caller, { idle }) => send(caller, 'actor_send_json', idle),
  },
  {
    name: 'send a message by itself',
    functions: ['actor_send_alone'],
    open: 'statement',
    run: (caller, { idle }) => send(caller, 'actor_send_alone', idle),
  },
  // Dispatchers.
  {
    name: 'ask an actor',
    functions: ['actor_ask'],
    open: 'statement',
    run: ({ one }, { idle }) => one('select pawl.actor_ask($1)', [question(idle)]),
  },
  {
    name: 'look for an answer',
    functions: ['actor_look_for_answer'],
    open: 'statement',
    run: ({ one }, { question: message }) => one('select pawl.actor_look_for_answer($1)', [message]),
  },
  {
    name: 'stop to wait for an answer',
    functions: ['actor_end_question'],
    open: 'statement',
    run: ({ one }, { question: message }) => one('select pawl.actor_end_question($1)', [message]),
  },
  {
    name: 'claim actors',
    functions: ['actor_claim'],
    open: 'statement',
    run: ({ one }, { worker, type }) => one('select pawl.actor_claim($1, array[$2]::smallint[], 10)', [worker, type]),
  },
  {
    name: 'claim actors or offer',
    functions: ['actor_claim'],
    open: 'statement',
    run: ({ one }, { worker, type }) =>
      one(`select pawl.actor_claim($1, array[$2]::smallint[], 10, $3, 'pawl_nobody')`, [
        worker,
        type,
        randomInt(2 ** 40),
      ]),
  },
  {
    name: 'claim one actor',
    functions: ['actor_claim_one'],
    open: 'statement',
    run: ({ one }, { worker, due }) => one('select pawl.actor_claim_one($1, $2)', [worker, due]),
  },
  {
    name: 'claim an actor that is run alone',
    functions: ['actor_claim_alone'],
    open: 'statement',
    run: ({ one }, { worker, type }) =>
      one('select pawl.actor_claim_alone($1, array[$2]::smallint[], true)', [worker, type]),
  },
  {
    name: 'absorb what came',
    functions: ['actor_absorb'],
    open: 'statement',
    run: ({ one }, { type }) => one('select pawl.actor_absorb(array[$1]::smallint[], 100)', [type]),
  },
  {
    name: 'commit a turn that moves',
    functions: ['actor_commit'],
    open: 'transaction',
    run: (caller, { running }) => commit(caller, running, 'to', 'off'),
  },
  {
    name: 'commit a turn that stays',
    functions: ['actor_commit'],
    open: 'statement',
    run: (caller, { running }) => commit(caller, running, 'stay', null),
  },
  {
    name: 'commit a turn that creates with a key',
    functions: ['actor_apply_effect'],
    open: 'transaction',
    run: ({ one }, { typeName, page }) =>
      one(`select pawl.actor_apply_effect('create', $1)`, [
        JSON.stringify([{ type: typeName, state: 'on', version: 1, key: page }, {}]),
      ]),
  },
  {
    name: 'commit a turn that opens a page',
    functions: ['actor_apply_effect'],
    open: 'transaction',
    run: ({ one }, { page }) =>
      one(`select pawl.actor_apply_effect('page', $1)`, [JSON.stringify({ tag: page, summary: 'again' })]),
  },
  {
    name: 'commit a turn that answers',
    functions: ['actor_apply_effect'],
    open: 'transaction',
    run: ({ one }, { question: message }) =>
      one(`select pawl.actor_apply_effect('reply', $1)`, [JSON.stringify([{ message }, 'so'])]),
  },
  {
    name: 'guard a turn',
    functions: ['actor_guard'],
    open: 'transaction',
    run: ({ one }, { running }) => one('select pawl.actor_guard($1)', [JSON.stringify(running)]),
  },
  {
    name: 'lend a turn to its transaction',
    functions: ['actor_run_in_transaction'],
    open: 'statement',
    run: ({ one }, { running }) => one('select pawl.actor_run_in_transaction($1)', [JSON.stringify(running)]),
  },
  {
    name: 'remember an effect',
    functions: ['actor_remember'],
    open: 'statement',
    run: ({ one }, { running }) =>
      one('select pawl.actor_remember($1)', [JSON.stringify([{ ...running, visit: 1, key: 'k' }, 1])]),
  },
  {
    name: 'give back an unknown state',
    functions: ['actor_report_unknown'],
    open: 'statement',
    run: ({ one }, { running, type }) =>
      one('select pawl.actor_report_unknown($1)', [
        JSON.stringify({ ...running, type, state: 'on', version: 1, reason: 'why' }),
      ]),
  },
  {
    name: 'beat of dispatchers',
    functions: ['actor_beat'],
    open: 'statement',
    run: ({ one }, { worker }) => one('select pawl.actor_beat($1, $2)', [[worker], [true]]),
  },
  {
    name: 'offer of a dispatcher',
    functions: ['actor_offer_add'],
    open: 'statement',
    run: ({ one }, { worker }) =>
      one(`select pawl.actor_offer_add($1, $2, 'pawl_nobody')`, [worker, randomInt(2 ** 40)]),
  },
  {
    name: 'withdraw offers of a dispatcher',
    functions: ['actor_withdraw'],
    open: 'statement',
    run: ({ one }, { worker }) => one('select pawl.actor_withdraw($1)', [worker]),
  },
  {
    name: 'recall actors',
    functions: ['actor_recall'],
    open: 'statement',
    run: ({ one }, { worker }) => one(`select pawl.actor_recall($1, '{}', '{}', true)`, [worker]),
  },
  {
    name: 'leave as a dispatcher',
    functions: ['actor_leave', 'actor_end_worker'],
    open: 'statement',
    run: async ({ one }, { worker }) => {
      await one(`select pawl.actor_leave($1, '{}', '{}')`, [worker]);
      await one('select pawl.actor_end_worker($1)', [worker]);
    },
  },
  // Chores.
  {
    name: 'rescue actors',
    functions: ['actor_rescue'],
    open: 'statement',
    run: ({ one }) => one('select pawl.actor_rescue()'),
  },
  {
    name: 'look at deadlines',
    functions: ['actor_deadlines'],
    open: 'statement',
    run: ({ one }) => one('select pawl.actor_deadlines()'),
  },
  {
    name: 'prune actors',
    functions: ['actor_prune'],
    open: 'statement',
    run: ({ one }) => one('select pawl.actor_prune(1000)'),
  },
  {
    name: 'wake dispatchers',
    functions: ['actor_wake'],
    open: 'statement',
    run: ({ one }, { type }) => one('select pawl.actor_wake(array[$1]::smallint[])', [type]),
  },
  // Operators and programs that start.
  {
    name: 'register types',
    functions: ['actor_register'],
    open: 'statement',
    run: ({ one }, { typeName: name }) => one('select pawl.actor_register($1)', [JSON.stringify([{ ...TYPE, name }])]),
  },
  {
    name: 'register another version of a type',
    functions: ['actor_register'],
    open: 'statement',
    run: ({ one }, { typeName: name }) =>
      one('select pawl.actor_register($1)', [JSON.stringify([{ ...TYPE, name, version: 2 }])]),
  },
  {
    name: 'let go held actors',
    functions: ['actor_release_held'],
    open: 'statement',
    run: ({ one }, { type }) =>
      one('select pawl.actor_release_held($1)', [JSON.stringify({ [type]: { $version: 1, on: true } })]),
  },
  {
    name: 'retry an actor',
    functions: ['actor_retry'],
    open: 'statement',
    run: ({ one }, { idle }) => one('select pawl.actor_retry($1)', [idle]),
  },
  {
    name: 'move an actor',
    functions: ['actor_move'],
    open: 'statement',
    run: ({ one }, { running: { actor, epoch } }) =>
      one('select pawl.actor_move($1)', [JSON.stringify([{ actor, epoch, state: 'off', reason: 'why' }, { n: 1 }])]),
  },
  {
    name: 'fill the index of a type',
    functions: ['actor_index_fill'],
    open: 'statement',
    run: ({ one }, { typeName }) => one('select pawl.actor_index_fill($1, 0, 1000, null)', [typeName]),
  },
  {
    name: 'complete the index of a type',
    functions: ['actor_index_filled'],
    open: 'statement',
    run: ({ one }, { typeName }) => one(`select pawl.actor_index_filled($1, '{}')`, [typeName]),
  },
  {
    name: 'pause an actor',
    functions: ['actor_pause'],
    open: 'statement',
    run: ({ one }, { idle }) => one('select pawl.actor_pause($1)', [JSON.stringify({ actor: idle })]),
  },
  {
    name: 'pause a type',
    functions: ['actor_pause'],
    open: 'statement',
    run: ({ one }, { typeName }) => one('select pawl.actor_pause($1)', [JSON.stringify({ type: typeName })]),
  },
  {
    name: 'open a page',
    functions: ['page_open'],
    open: 'transaction',
    run: ({ one }, { page }) => one('select pawl.page_open($1)', [JSON.stringify({ tag: page, summary: 'again' })]),
  },
  {
    name: 'resolve a page',
    functions: ['page_resolve'],
    open: 'transaction',
    run: ({ one }, { page }) => one('select pawl.page_resolve($1)', [page]),
  },
  {
    name: 'take notices of pages',
    functions: ['page_take_notices'],
    open: 'statement',
    run: ({ one }) => one('select pawl.page_take_notices(10)'),
  },
  {
    name: 'note the delivery of a notice',
    functions: ['page_note_delivery'],
    open: 'statement',
    run: ({ one }, { notice }) =>
      one('select pawl.page_note_delivery($1)', [JSON.stringify({ id: notice, delivered: ['mail'] })]),
  },
];
