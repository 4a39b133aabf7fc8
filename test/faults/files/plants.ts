import { Readable } from 'node:stream';
import type pg from 'pg';
import type { Content, Part } from '../../../src/files/content.ts';
import { GuardedContent } from '../../../src/files/guarded-content.ts';
import { Reader } from '../../../src/files/reader.ts';
import { Upload, type WriteResult } from '../../../src/files/write/publish.ts';
import { plantSql } from '../plants/plant.ts';
import { type Deed, type FilesPlan, type Operation, planFiles, type StoreFaulting } from './plan.ts';

interface Plant {
  /** A function of the database, and its change. */
  readonly sql?: readonly [name: string, from: RegExp | string, to: string];
  /** A change of the store in every process. */
  readonly content?: (content: Content) => void;
  /** A change in every member. */
  readonly member?: (content: Content) => void;
  /** The operations of the clients in a schedule that shows the bug. */
  readonly deeds: readonly Deed[];
  readonly store?: 'disk' | 's3';
  readonly storeFaults?: readonly StoreFaulting[];
}

/** Bugs, named by the behaviour of the files. */
export const PLANTS = [
  'ifVersion is not looked at',
  'a version number stands still',
  'what is live is collected',
  'what was replaced is gone at once',
  'what is removed lives on',
  'an upload that was given up stays',
  'a roll-back rolls nothing back',
  'nothing is deleted in the store',
  'an unknown name is deleted',
  'bytes are passed on unchecked',
  'a hot copy is not asked for',
  'a hanging store is waited for',
] as const;

export type PlantName = (typeof PLANTS)[number];

/** Plants that take long, or that show the same as others. */
export const LONG_PLANTS: ReadonlySet<PlantName> = new Set<PlantName>([
  'a version number stands still',
  'what is removed lives on',
  'an upload that was given up stays',
  'a hanging store is waited for',
]);

const WRITING: readonly Deed[] = ['write', 'tx', 'late', 'read'];

const ALL: Readonly<Record<PlantName, Plant>> = {
  'ifVersion is not looked at': {
    sql: ['file_publish', /if v_expected <> v_actual[^]*?then/, 'if false then'],
    deeds: WRITING,
  },
  'a version number stands still': {
    sql: ['file_publish', 'coalesce(v_document.version, 0) + 1', 'greatest(coalesce(v_document.version, 0), 1)'],
    deeds: WRITING,
  },
  'what is live is collected': {
    sql: ['file_publish', 'live_at = v_now, collect_at = null', 'live_at = v_now'],
    deeds: WRITING,
  },
  'what was replaced is gone at once': {
    sql: ['file_retire', 'p_retain_ms * ', '0 * '],
    deeds: WRITING,
  },
  'what is removed lives on': {
    sql: ['file_remove', /perform pawl\.file_retire[^;]*;/, ''],
    deeds: ['write', 'remove', 'read'],
  },
  'an upload that was given up stays': {
    sql: ['file_intend', /t\.now \+ p_pending_ms [^\n]*/, 'null'],
    deeds: ['undo', 'write'],
  },
  'a roll-back rolls nothing back': { member: publishAlone, deeds: ['undo', 'tx', 'write'] },
  'nothing is deleted in the store': {
    content: (content) => void Object.defineProperty(content, 'delete', { value: async () => {} }),
    deeds: ['abandon', 'write'],
  },
  'an unknown name is deleted': {
    content: (content) => {
      const call = { upload: undefined, isUnfinished: false };
      const remove: () => unknown = Reflect.get(Object(content), 'delete');
      const value: Content['quarantine'] = async (name, { signal }) => {
        await Reflect.apply(remove, content, [name, { ...call, signal }]);
        return true;
      };
      Object.defineProperty(content, 'quarantine', { value });
    },
    deeds: ['write', 'read'],
    storeFaults: [{ at: 500, do: 'strangers', ms: 0, times: 6, draw: 0 }],
  },
  'bytes are passed on unchecked': {
    member: readUnchecked,
    deeds: ['write', 'read', 'read', 'read'],
    store: 's3',
    // Between these times, all reads of objects.
    storeFaults: [500, 6000].map((at) => ({ at, do: 'flip', ms: 0, times: 10_000, draw: 1 })),
  },
  'a hot copy is not asked for': { member: keepFirst, deeds: ['write', 'hot', 'hot'] },
  'a hanging store is waited for': {
    member: () => {
      // Without time limits, and without a circuit breaker.
      const call: GuardedContent['call'] = (_, run) => run({ signal: new AbortController().signal });
      Object.defineProperty(GuardedContent.prototype, 'call', { value: call });
    },
    deeds: ['write', 'read'],
    storeFaults: [{ at: 500, do: 'hang', ms: 16_000, times: 1, draw: 0 }],
  },
};

/** Each publication is committed alone, even if it gets a transaction. */
function publishAlone(): void {
  const publish: () => Promise<WriteResult> = Reflect.get(Object(Upload.prototype), 'publish');
  const value: Upload['publish'] = function (this: Upload, options) {
    return Reflect.apply(publish, this, [{ ...options, tx: undefined }]);
  };
  Object.defineProperty(Upload.prototype, 'publish', { value });
}

/** Readers get the bytes of the store without checks. */
function readUnchecked(content: Content): void {
  const value: Reader['read'] = async function (this: Reader, id) {
    const version = await this.row(id, undefined, undefined);
    const all: Part = { start: 0, end: version.size, isWhole: true };
    const stream = Readable.from(await content.get(version.object, all, { signal: AbortSignal.timeout(5000) }));
    return { version, range: all, stream };
  };
  Object.defineProperty(Reader.prototype, 'read', { value });
}

/** The row of a document that was read first is used for ever. */
function keepFirst(): void {
  const row: () => ReturnType<Reader['row']> = Reflect.get(Object(Reader.prototype), 'row');
  const kept = new Map<string, ReturnType<Reader['row']>>();
  const value: Reader['row'] = function (this: Reader, id, version, tx) {
    const found = kept.get(id) ?? Reflect.apply(row, this, [id, version, tx]);
    kept.set(id, found);
    found.catch(() => kept.delete(id));
    return found;
  };
  Object.defineProperty(Reader.prototype, 'row', { value });
}

export async function plantInDatabase(plant: string | undefined, eye: pg.Pool): Promise<void> {
  const { sql } = plant === undefined ? { sql: undefined } : ALL[readPlant(plant)];
  if (sql === undefined) return;
  const [name, from, to] = sql;
  await plantSql(eye, name, (source) => source.replace(from, to));
}

export function plantInMember(plant: string, content: Content): void {
  plantInStore(plant, content);
  ALL[readPlant(plant)].member?.(content);
}

export function plantInStore(plant: string | undefined, content: Content): void {
  if (plant !== undefined) ALL[readPlant(plant)].content?.(content);
}

/** @throws Error  there is no such plant */
export function readPlant(name: string): PlantName {
  const found = PLANTS.find((each) => each === name);
  if (found === undefined) throw new Error(`there is no plant "${name}"; there are ${PLANTS.join(', ')}`);
  return found;
}

/** A schedule that shows the bug: with only the faults that it needs, and with many operations that it breaks. */
export function planForced(plant: PlantName): FilesPlan {
  const { deeds, store = 'disk', storeFaults = [] } = ALL[plant];
  const plan = planFiles(0);
  const clients = plan.clients.map((operations, client) =>
    Array.from({ length: 24 }, (_, at): Operation => {
      const deed = deeds[(at + client) % deeds.length] ?? 'write';
      const id = `doc-${at % 2}`;
      const size = operations[at % operations.length]?.size ?? 40;
      return { deed, id, from: id, size: Math.min(size, 100_000), isGuarded: true, restMs: 60, lateMs: 200 };
    }),
  );
  return {
    ...plan,
    title: plant,
    faults: [],
    hasOwnServer: false,
    store,
    limitMs: 1500,
    retainMs: plant === 'what was replaced is gone at once' ? 5000 : 500,
    clients,
    sweepers: 1,
    killAt: [],
    storeFaults,
  };
}
