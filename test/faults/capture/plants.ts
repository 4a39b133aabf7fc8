import pg from 'pg';
import { plantSql } from '../plants/plant.ts';
import type { Turn } from './plan.ts';

interface Plant {
  /** A function of the captured database or of the copy, and its change. */
  readonly name: string;
  readonly from: RegExp | string;
  readonly to: string;
  readonly isThere?: boolean;
  /** The turn that shows the bug. */
  readonly turn?: Turn;
}

/** The plant that shows only if a whole table counts as changed. */
export const WHOLE = 'what happened to a whole table is forgotten';

/** Bugs, named by the behaviour of the capture. */
export const PLANTS: Readonly<Record<string, Plant>> = {
  'what changes meanwhile is acknowledged, too': {
    name: 'capture_settle',
    from: 'd.id = any (p_ids)',
    to: 'd.key = any (p_keys)',
  },
  'some links are not followed': {
    name: 'capture_take_links',
    from: 'select distinct g.source, g.key from gone g',
    to: "select distinct g.source, g.key from gone g where g.source < 0 or g.key !~ '[37]$'",
  },
  'a batch has what was committed after it': {
    name: 'capture_take_batch',
    from: 'where pg_visible_in_snapshot(c.xid, v_line.until)',
    to: 'where true',
  },
  'what commits late is passed over': {
    name: 'capture_take_batch',
    from: 'c.xid = x.xid',
    to: 'false',
  },
  'a full batch is taken for the last one': {
    name: 'capture_advance',
    from: /case when p_after is null then l\.until else l\.seen end,\s+until = case when p_after is null then null else l\.until end/,
    to: 'coalesce(l.until, l.seen), until = null',
  },
  [WHOLE]: {
    name: 'capture_sweep_start',
    from: "set phase = 'root'",
    to: "set phase = 'done'",
  },
  'a delivery is late, and taken anyway': {
    name: 'capture_copy_take',
    from: 'where c.version < excluded.version',
    to: 'where true',
    isThere: true,
  },
  'a copy does not notice what its source has lost': {
    name: 'capture_copy_next_version',
    from: /exists \(select from pawl\.capture_known[^)]*\)\)/,
    to: 'true',
    turn: 'failover',
  },
  'what may never have been is not looked for': {
    name: 'capture_copy_begin',
    from: 'c.position > p_reached',
    to: 'false',
    isThere: true,
    turn: 'crash',
  },
  'numbers of another server are believed': {
    name: 'capture_is_foreign',
    from: /select not[^]*\)\)/,
    to: 'select false',
    turn: 'dump',
  },
  'what came since a restore counts as given': {
    name: 'capture_rebase',
    from: 'c.id > l.top or',
    to: '',
    turn: 'dump',
  },
};

export async function plantInDatabase(plant: string, eye: pg.Pool, copyUrl: string): Promise<void> {
  const { name, from, to, isThere = false } = PLANTS[plant] ?? { name: plant, from: '', to: '' };
  const change = (source: string): string => source.replace(from, () => to);
  if (!isThere) return plantSql(eye, name, change);
  const there = new pg.Client({ connectionString: copyUrl });
  await there.connect();
  try {
    await plantSql(there, name, change);
  } finally {
    await there.end();
  }
}
