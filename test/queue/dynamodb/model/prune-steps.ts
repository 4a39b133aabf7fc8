// The steps of a process that removes jobs that are over, and the heads of keys with the last one.
import { applied, type Fields } from '../../../../src/engine/dynamodb/index.ts';
import { readHead, standingOf } from '../../../../src/queue/dynamodb/heads/head.ts';
import { keyStandingOf, readKeyHead } from '../../../../src/queue/dynamodb/heads/key-head.ts';
import { keyForgotten } from '../../../../src/queue/dynamodb/heads/key-removal.ts';
import { JOBS } from '../../../../src/queue/dynamodb/heads/place.ts';
import type { Step } from '../../../support/history/explore.ts';

export interface Pruner {
  /** The fence of the shard, as it was read first. */
  readonly fence: { readonly token: number } | null;
  /** The piece that it looks at, and the head of its key, as it was read before its rows. */
  readonly piece: number | null;
  readonly key: string | null;
  readonly head: Fields | null;
  readonly at:
    | 'rest'
    | 'has read the shard'
    | 'has read the key'
    | 'removes the job'
    | 'removes the head'
    | 'removes the piece';
}

/** What it reads and writes. */
export interface PrunedState {
  readonly rows: Readonly<Record<string, Fields>>;
  readonly pieces: Readonly<Record<number, { readonly n: number; readonly producer: number }>>;
  readonly later: Readonly<Record<string, readonly number[]>>;
  readonly pruner: Pruner | null;
}

const HEAD = 'head';

export const IDLE: Pruner = {
  fence: null,
  piece: null,
  key: null,
  head: null,
  at: 'rest',
};

/** All jobs are gone, and with them the heads of their keys, unless somebody who came late may have made one anew. */
export function isAllPruned({ pieces, pruner, rows }: PrunedState, isPunctual: boolean): boolean {
  const isEmpty = Object.values(pieces).every(({ n }) => n === 0) && pruner?.at === 'rest';
  return isEmpty && (!isPunctual || Object.keys(rows).every((row) => row === HEAD));
}

export function pruneSteps<S extends PrunedState>(
  state: S,
  keys: readonly (string | null)[],
  plant: string | undefined,
): Step<S>[] {
  const me = state.pruner;
  if (me === null) return [];
  const become: Become<S> = (what, next, more = {}) => [
    { what: `the pruner ${what}`, state: { ...state, ...more, pruner: { ...me, ...next } } },
  ];

  const { piece, key } = me;
  if (me.at === 'rest' || piece === null) return begins(state, keys, become);
  const jobs = key === null ? [] : (state.later[key] ?? []);
  switch (me.at) {
    case 'has read the shard': {
      const head = key === null ? {} : (state.rows[key] ?? {});
      const standing = keyStandingOf(readKeyHead(head), piece * JOBS);
      const isGone = standing === 'later' && !jobs.includes(piece * JOBS);
      if (key !== null && standing !== 'over' && standing !== 'cancelled' && !isGone) {
        return become('finds it outstanding', IDLE);
      }
      return become('reads the key', { at: key === null ? 'removes the piece' : 'has read the key', head });
    }
    case 'has read the key': {
      const head = readKeyHead(me.head ?? {});
      const isLast = jobs.every((job) => job === piece * JOBS);
      const forgotten = keyForgotten(head, me.fence?.token ?? 0);
      if (isLast && head.fields['v'] !== undefined && forgotten === undefined) return become('leaves it for now', IDLE);
      const isFirst = plant === 'heads of keys go first' && head.fields['v'] !== undefined;
      if (isLast || isFirst) return become('finds no other job', { at: 'removes the job' });
      return become('finds another job', { at: 'removes the job', head: {} });
    }
    case 'removes the job': {
      const later = { ...state.later, [key ?? '']: jobs.filter((job) => job !== piece * JOBS) };
      return become('removes the job of the key', { at: 'removes the head' }, { later });
    }
    case 'removes the head': {
      const head = readKeyHead(me.head ?? {});
      const change = head.fields['v'] === undefined ? undefined : { expect: { v: head.fields['v'] }, set: {} };
      const now = state.rows[key ?? ''] ?? {};
      const isBlind = plant === 'heads of keys go whatever has changed';
      if (change === undefined || (applied(now, change) === undefined && !isBlind)) {
        return become('leaves the head', { at: 'removes the piece' });
      }
      const { [key ?? '']: _, ...rows } = state.rows;
      return become('removes the head of the key', { at: 'removes the piece' }, { rows });
    }
    case 'removes the piece': {
      const pieces = { ...state.pieces, [piece]: { n: 0, producer: state.pieces[piece]?.producer ?? -1 } };
      return become(`removes piece ${piece}`, IDLE, { pieces });
    }
  }
}

type Become<S> = (what: string, next: Partial<Pruner>, more?: Partial<PrunedState>) => Step<S>[];

function begins<S extends PrunedState>(state: S, keys: readonly (string | null)[], become: Become<S>): Step<S>[] {
  const head = readHead(state.rows[HEAD] ?? {});
  return Object.entries(state.pieces).flatMap(([name, { n, producer }]) => {
    const piece = Number(name);
    if (n === 0 || standingOf(head, { piece, index: 0 }) !== 'gone') return [];
    return become(`looks at piece ${piece}`, {
      at: 'has read the shard',
      fence: { token: head.fence },
      piece,
      key: keys[producer] ?? null,
    });
  });
}
