import { Draw } from '../../../support/random.ts';
import type { DocumentRow, FilesHistory, ObjectRow, Wish } from '../history.ts';
import type { Deed } from '../plan.ts';

/** Bugs of simulated files. */
export const BUGS = [
  'a version that was answered is gone',
  'a version has other bytes than were told',
  'two versions have one number',
  'a number is left out',
  'a version appears from nowhere',
  'a publication is done twice',
  'what was rolled back is there',
  'a row is committed without its version',
  'another version than expected is replaced',
  'an old version goes on living',
  'the bytes of a live version are gone',
  'an orphan is left',
  'an upload is never collected',
  'what was replaced is gone too early',
  'a stranger is deleted',
  'what is known is taken to quarantine',
  'parts stay',
  'a wrong byte is passed on',
  'a reader sees an old version',
  'a kept version cannot be read',
  'a document is not found',
] as const;

export type Bug = (typeof BUGS)[number];

type Writable<T> = { -readonly [K in keyof T]: T[K] };

const DEEDS: readonly Deed[] = [
  'write',
  'tx',
  'late',
  'undo',
  'abandon',
  'remove',
  'restore',
  'copy',
  'read',
  'read old',
  'hot',
];
const RETAIN_MS = 1000;
const GRACE_MS = 2000;

/** A legal history of files; or, with a bug, a history that shows the bug if the bug has an effect in it. */
export function simulate(seed: number, bug?: Bug): FilesHistory {
  return new Simulation(new Draw(seed, 'history'), bug).run();
}

/** One operation after another, each at its own moment. A killed process received no answer. */
class Simulation {
  readonly #draw: Draw;
  readonly #bug: Bug | undefined;
  readonly #wishes: Writable<Wish>[] = [];
  readonly #rows: Writable<ObjectRow>[] = [];
  readonly #documents = new Map<string, Writable<DocumentRow>>();
  readonly #committed: string[] = [];
  readonly #rotten: string[] = [];
  #at = 0;
  #objects = 0;

  constructor(draw: Draw, bug: Bug | undefined) {
    this.#draw = draw;
    this.#bug = bug;
  }

  run(): FilesHistory {
    const operations = this.#draw.int(5, 25);
    for (let n = 0; n < operations; n += 1) this.#operate(`op ${n}`);
    return this.#spoil(this.#end());
  }

  #operate(op: string): void {
    const draw = this.#draw;
    const [first = 'write', ...others] = DEEDS;
    const deed = draw.pick(first, ...others);
    const isOwn = deed === 'write' || deed === 'tx' || deed === 'late' || deed === 'undo' || deed === 'abandon';
    const wish: Writable<Wish> = {
      op,
      deed,
      id: `doc-${draw.int(1, 2)}`,
      sha256: isOwn ? `hash of ${op}` : null,
      askedAt: (this.#at += draw.int(1, 400)),
      expected: undefined,
      told: undefined,
      got: undefined,
      failed: undefined,
    };
    this.#wishes.push(wish);
    if (draw.chance(0.1)) return;
    if (deed === 'read' || deed === 'read old' || deed === 'hot') this.#read(wish);
    else if (deed === 'remove') this.#remove(wish);
    else this.#write(wish);
  }

  #read(wish: Writable<Wish>): void {
    const versions = this.#rows.filter(
      (row) => row.id === wish.id && (row.state === 'live' || row.state === 'retired'),
    );
    const live = versions.find(({ state }) => state === 'live');
    const row = wish.deed === 'read old' ? versions[this.#draw.int(0, versions.length - 1)] : live;
    const at = (this.#at += this.#draw.int(1, 50));
    if (row === undefined || row.version === null) wish.failed = { at, code: 'not_found', message: 'there is none' };
    else if (this.#rotten.includes(row.sha256 ?? ''))
      wish.failed = { at, code: 'corrupt_object', message: 'it rotted' };
    else wish.got = { at, version: row.version, sha256: row.sha256 ?? '', digest: row.sha256 ?? '' };
  }

  #remove(wish: Writable<Wish>): void {
    const document = this.#documents.get(wish.id);
    if (document === undefined || document.object === null) {
      wish.failed = { at: (this.#at += 1), code: 'not_found', message: 'there is none' };
      return;
    }
    this.#retire(wish.id);
    document.version += 1;
    document.object = null;
    if (this.#draw.chance(0.9)) wish.told = { at: (this.#at += 1), version: 0, sha256: null };
  }

  #write(wish: Writable<Wish>): void {
    const { deed, op, id } = wish;
    const draw = this.#draw;
    const document = this.#documents.get(id);
    const there = document === undefined || document.object === null ? 0 : document.version;
    if (draw.chance(0.4)) wish.expected = draw.chance(0.8) ? there : Math.max(0, there - 1);
    const source = deed === 'copy' || deed === 'restore' ? this.#kept(deed === 'copy' ? undefined : id) : undefined;
    const sha256 = wish.sha256 ?? source?.sha256 ?? undefined;
    const isRefused = wish.expected !== undefined && wish.expected !== there;
    if (sha256 === undefined || isRefused || deed === 'undo' || deed === 'abandon') {
      this.#add({ id, version: null, state: 'deleted', sha256: null, deletedMs: this.#at });
      const told = { at: (this.#at += 1), version: 0, sha256: null };
      if (deed === 'abandon') wish.told = told;
      else wish.failed = { at: (this.#at += 1), code: isRefused ? 'version_conflict' : 'Undone', message: 'no' };
      return;
    }
    this.#retire(id);
    const version = (document?.version ?? 0) + 1;
    const { object } = this.#add({ id, version, state: 'live', sha256, deletedMs: null });
    this.#documents.set(id, { id, version, object });
    if (deed === 'tx' || deed === 'late') this.#committed.push(op);
    // The answer to a COMMIT may be lost.
    if (draw.chance(0.9)) wish.told = { at: (this.#at += 1), version, sha256 };
    else wish.failed = { at: (this.#at += 1), code: 'connection_failed', message: 'lost' };
    if (draw.chance(0.1)) this.#rotten.push(sha256);
  }

  #kept(id: string | undefined): ObjectRow | undefined {
    return this.#rows.find(
      (row) => row.version !== null && row.state !== 'deleted' && (id === undefined || row.id === id),
    );
  }

  #retire(id: string): void {
    const live = this.#rows.find((row) => row.id === id && row.state === 'live');
    if (live === undefined) return;
    live.retiredMs = this.#at;
    live.state = this.#draw.chance(0.5) ? 'retired' : 'deleted';
    if (live.state === 'deleted') live.deletedMs = this.#at + RETAIN_MS + GRACE_MS + this.#draw.int(0, 500);
  }

  #add(row: Pick<ObjectRow, 'id' | 'version' | 'state' | 'sha256' | 'deletedMs'>): ObjectRow {
    const whole = { object: `object ${(this.#objects += 1)}`, retiredMs: null, ...row };
    this.#rows.push(whole);
    return whole;
  }

  #end(): Writable<FilesHistory> {
    const kept = this.#rows.filter(({ state }) => state === 'live' || state === 'retired');
    const isRotten = (hash: string): boolean => this.#rotten.includes(hash);
    const stored = kept.map(({ object, sha256 }) => ({
      name: object,
      sha256: isRotten(sha256 ?? '') ? 'rotten' : (sha256 ?? ''),
    }));
    const strangers = Array.from({ length: this.#draw.int(0, 2) }, (_, n) => `stranger ${n}`);
    const isAway = this.#draw.chance(0.5);
    return {
      wishes: this.#wishes,
      rows: this.#rows,
      documents: [...this.#documents.values()],
      committed: this.#committed,
      stored: isAway ? stored : [...stored, ...strangers.map((name) => ({ name, sha256: 'of somebody' }))],
      quarantined: isAway ? strangers : [],
      strangers,
      rotten: this.#rotten,
      unfinished: [],
      isWayDamaged: false,
      retainMs: RETAIN_MS,
      graceMs: GRACE_MS,
      hastenedMs: Infinity,
      complaints: [],
    };
  }

  #spoil(history: Writable<FilesHistory>): FilesHistory {
    const live = this.#rows.find(({ state, sha256 }) => state === 'live' && !this.#rotten.includes(sha256 ?? ''));
    const told = this.#wishes.find(
      (wish) => wish.told !== undefined && wish.told.version > 0 && (wish.deed === 'write' || wish.deed === 'tx'),
    );
    const row = this.#rows.find(({ version, id }) => version === told?.told?.version && id === told?.id);
    const got = this.#wishes.find((wish) => wish.got !== undefined && wish.deed !== 'read old');
    const add = (changes: Partial<ObjectRow>): void => {
      const base = {
        object: 'spoilt',
        id: 'doc-1',
        version: null,
        state: 'deleted',
        sha256: null,
        retiredMs: null,
        deletedMs: null,
      };
      this.#rows.push({ ...base, ...changes });
    };
    switch (this.#bug) {
      case undefined:
        break;
      case 'a version that was answered is gone':
        if (row !== undefined) this.#rows.splice(this.#rows.indexOf(row), 1);
        break;
      case 'a version has other bytes than were told':
        if (row !== undefined) row.sha256 = 'other';
        break;
      case 'two versions have one number':
        if (row !== undefined) add({ ...row, object: 'spoilt', state: 'deleted', retiredMs: null });
        break;
      case 'a number is left out':
        for (const document of this.#documents.values()) document.version += 10;
        break;
      case 'a version appears from nowhere':
        if (live !== undefined) live.sha256 = 'of nobody';
        break;
      case 'a publication is done twice':
        for (const { id, version } of this.#documents.values()) {
          const mine = this.#rows.find((each) => each.id === id && each.sha256 === told?.sha256);
          if (mine !== undefined)
            for (let n = 0; n < 20; n += 1)
              add({ ...mine, version: version - 1000 - n, state: 'deleted', retiredMs: null });
        }
        break;
      case 'what was rolled back is there':
        for (const { deed, id, sha256 } of this.#wishes) {
          if (deed === 'undo') add({ id, sha256, version: 0 });
        }
        break;
      case 'a row is committed without its version':
        history.committed = this.#wishes.filter(({ deed }) => deed === 'tx' || deed === 'late').map(({ op }) => op);
        break;
      case 'another version than expected is replaced':
        for (const wish of this.#wishes) if (wish.expected !== undefined) wish.expected += 1;
        break;
      case 'an old version goes on living':
        for (const each of this.#rows) if (each.version !== null) each.state = 'live';
        break;
      case 'the bytes of a live version are gone':
        history.stored = history.stored.filter(({ name }) => name !== live?.object);
        break;
      case 'an orphan is left':
        history.stored = [...history.stored, { name: 'orphan', sha256: '' }];
        break;
      case 'an upload is never collected':
        add({ state: 'pending' });
        break;
      case 'what was replaced is gone too early':
        for (const each of this.#rows)
          if (each.retiredMs !== null && each.deletedMs !== null) each.deletedMs = each.retiredMs + 1;
        break;
      case 'a stranger is deleted':
        history.strangers = [...history.strangers, 'stranger gone'];
        break;
      case 'what is known is taken to quarantine':
        history.quarantined = [...history.quarantined, ...this.#rows.map(({ object }) => object)];
        break;
      case 'parts stay':
        history.unfinished = ['some key'];
        break;
      case 'a wrong byte is passed on':
        if (got?.got !== undefined) got.got = { ...got.got, digest: 'other' };
        break;
      case 'a reader sees an old version':
        if (got?.got !== undefined) got.got = { ...got.got, version: 0 };
        break;
      case 'a kept version cannot be read':
        if (got?.got !== undefined) {
          got.failed = { at: got.got.at, code: 'corrupt_object', message: '' };
          got.got = undefined;
        }
        break;
      case 'a document is not found':
        if (got?.got !== undefined) {
          got.failed = { at: got.got.at, code: 'not_found', message: '' };
          got.got = undefined;
        }
    }
    return history;
  }
}
