import type { Violation } from '../../plan.ts';
import type { FilesHistory, ObjectRow, Wish } from '../history.ts';

/** The history by document. */
export class Observation {
  readonly history: FilesHistory;
  readonly rotten: ReadonlySet<string>;
  readonly ids: readonly string[];
  readonly #rows: ReadonlyMap<string, readonly ObjectRow[]>;
  readonly #wishes: ReadonlyMap<string, readonly Wish[]>;

  constructor(history: FilesHistory) {
    this.history = history;
    this.rotten = new Set(history.rotten);
    this.#rows = grouped(history.rows);
    this.#wishes = grouped(history.wishes);
    this.ids = [...new Set([...this.#rows.keys(), ...this.#wishes.keys()])].toSorted();
  }

  /** The versions of a document, in order. */
  versions(id: string): (ObjectRow & { readonly version: number })[] {
    const all = (this.#rows.get(id) ?? []).flatMap((row) =>
      row.version === null ? [] : [{ ...row, version: row.version }],
    );
    return all.toSorted((a, b) => a.version - b.version);
  }

  wishes(id: string): readonly Wish[] {
    return this.#wishes.get(id) ?? [];
  }

  violation(rule: string, id: string): Violation {
    return { rule, about: id, story: this.#story(id) };
  }

  #story(id: string): string[] {
    const rows = (this.#rows.get(id) ?? []).map(
      ({ version, state, object, sha256 }) => `version ${version} is ${state}: ${object} ${sha256?.slice(0, 8)}`,
    );
    const wishes = this.wishes(id).map(({ op, deed, askedAt, expected, told, got, failed, sha256 }) => {
      const came =
        (told && `${told.at.toFixed(0)} told version ${told.version}`) ??
        (got && `${got.at.toFixed(0)} got version ${got.version} ${got.digest.slice(0, 8)}`) ??
        (failed && `${failed.at.toFixed(0)} ${failed.code} ${failed.message.slice(0, 120)}`);
      const over = expected === undefined ? '' : ` over ${expected}`;
      return `${askedAt.toFixed(0)} ${op} ${deed}${over} ${sha256?.slice(0, 8) ?? ''}: ${came ?? 'no answer'}`;
    });
    return [...wishes, ...rows].slice(-60);
  }
}

function grouped<T extends { readonly id: string }>(all: readonly T[]): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const one of all) groups.set(one.id, [...(groups.get(one.id) ?? []), one]);
  return groups;
}
