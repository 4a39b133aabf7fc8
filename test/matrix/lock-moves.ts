import { randomUUID } from 'node:crypto';
import { captureRows, settle } from '../../src/lock/index.ts';
import { capture, type Grant, type LockSide, PLACE_MS, type Row, TAKE, takeValues } from './lock-stage.ts';
import type { Caller, Move } from './move.ts';

function take({ one }: Caller, { space, process }: LockSide, name: string): Promise<unknown> {
  return one(TAKE, takeValues(space, name, 600_000, process));
}

function acquire({ one }: Caller, { space, process }: LockSide, names: readonly string[]): Promise<unknown> {
  return one(`select pawl.lock_acquire($1, $2, $3, 1, 600000, $4, 'host', 1, $5)`, [
    space,
    names,
    randomUUID(),
    process,
    PLACE_MS,
  ]);
}

function release({ one }: Caller, { space, process }: LockSide, { name, token }: Grant): Promise<unknown> {
  return one('select pawl.lock_release($1, $2, $3, $4)', [space, [name], token, process]);
}

function free({ one }: Caller, { space, process }: LockSide, { name, token }: Grant): Promise<unknown> {
  return one('select pawl.lock_release_one($1, $2, $3, $4)', [space, name, token, process]);
}

const TABLE = { name: 'task' };

/** Every call of the locks that writes. Where a move names a lock or a row, it is one of its side. */
export const LOCK_MOVES: readonly Move<LockSide>[] = [
  {
    name: 'take a free lock',
    functions: ['lock_acquire_one'],
    open: 'statement',
    run: (caller, side) => take(caller, side, side.free),
  },
  {
    name: 'take a lock that is held: a place in the queue',
    functions: ['lock_acquire_one'],
    open: 'statement',
    run: (caller, side) => take(caller, side, side.held.name),
  },
  {
    name: 'take an expired lock',
    functions: ['lock_acquire_one'],
    open: 'statement',
    run: (caller, side) => take(caller, side, side.expired),
  },
  {
    name: 'acquire a set',
    functions: ['lock_acquire'],
    open: 'statement',
    run: (caller, side) => acquire(caller, side, [side.free, side.expired]),
  },
  {
    name: 'keep without a lease',
    functions: ['lock_drop_lease'],
    open: 'statement',
    run: ({ one }, { space, held }) => one('select pawl.lock_drop_lease($1, $2, $3)', [space, [held.name], held.token]),
  },
  {
    name: 'renew',
    functions: ['lock_beat'],
    open: 'statement',
    run: ({ one }, { space, held, wanted }) =>
      one('select count(*) from pawl.lock_beat($1, $2, $3)', [
        [space, space],
        [held.name, wanted.name],
        [held.token, wanted.token],
      ]),
  },
  {
    name: 'keep a place in the queue',
    functions: ['lock_renew_places'],
    open: 'statement',
    run: ({ one }, { wanted }) =>
      one('select count(*) from pawl.lock_renew_places($1, $2)', [[wanted.nonce], [PLACE_MS]]),
  },
  {
    name: 'guard a lock',
    functions: ['lock_guard'],
    open: 'transaction',
    run: ({ one }, { space, held }) =>
      one('select pawl.lock_guard($1)', [JSON.stringify({ space, names: [held.name], token: held.token })]),
  },
  {
    name: 'release',
    functions: ['lock_release_one'],
    open: 'statement',
    run: (caller, side) => free(caller, side, side.held),
  },
  {
    name: 'release to one who waits',
    functions: ['lock_release_one'],
    open: 'statement',
    run: (caller, side) => free(caller, side, side.wanted),
  },
  {
    name: 'release of a set',
    functions: ['lock_release'],
    open: 'statement',
    run: (caller, side) => release(caller, side, side.held),
  },
  {
    name: 'leave the queue',
    functions: ['lock_stop_waiting'],
    open: 'statement',
    run: ({ one }, { space, process, wanted }) =>
      one('select called from pawl.lock_stop_waiting($1, $2, $3, $4)', [space, [wanted.name], wanted.nonce, process]),
  },
  {
    name: 'break',
    functions: ['lock_break'],
    open: 'statement',
    run: ({ one }, { space, held }) => one(`select token from pawl.lock_break($1, $2, 'why')`, [space, held.name]),
  },
  {
    name: 'sweep',
    functions: ['lock_sweep'],
    open: 'statement',
    run: ({ one }) => one(`select pawl.lock_sweep(interval '0')`),
  },
  {
    name: 'lock rows of a table',
    functions: ['lock_rows'],
    open: 'transaction',
    run: ({ one }, { row }) =>
      one('select pawl.lock_rows($1)', [
        JSON.stringify({ table: TABLE, keys: [[row]], mode: 'update', ifLocked: 'wait', timeout: 'Infinity' }),
      ]),
  },
  {
    name: 'lock a key for a transaction',
    functions: ['lock_key'],
    open: 'transaction',
    run: ({ one }, { row }) =>
      one('select pawl.lock_key($1)', [
        JSON.stringify({ key: row, mode: 'exclusive', ifLocked: 'wait', timeout: 'Infinity' }),
      ]),
  },
  {
    name: 'capture rows',
    functions: ['lock_claim_rows'],
    open: 'transaction',
    run: ({ client }, { owner }) => captureRows<Row>(client, 'task', capture(owner)),
  },
  {
    name: 'settle captured rows',
    functions: ['lock_settle_rows'],
    open: 'transaction',
    run: ({ client }, { captured }) => settle<Row>(client, 'task', captured, 'done'),
  },
];
