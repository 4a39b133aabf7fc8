import { fieldsOf, type Item } from '../../../engine/dynamodb/index.ts';
import { type ActorRows, freshName } from '../database.ts';
import { NOTES, noteOf, sortKey } from '../rows.ts';

/** An actor, and the epoch at which a worker is about to claim it. */
export type NotedActor = readonly [actor: number, epoch: number];

/** The actors that a worker may have claimed. A note is written before their heads, and removed when the turns are over. */
export interface Note {
  readonly worker: number;
  readonly name: string;
  readonly actors: readonly NotedActor[];
}

/** The notes of the workers of this process. */
export class Notes {
  readonly #rows: ActorRows;
  /** The note of a turn, by worker and actor. */
  readonly #open = new Map<string, { readonly note: Note; readonly left: Set<number> }>();

  constructor(rows: ActorRows) {
    this.#rows = rows;
  }

  /** Writes a note, in one write, however many actors it names. */
  async write(worker: number, actors: readonly NotedActor[]): Promise<Note> {
    const note = { worker, name: freshName(), actors };
    await this.#rows.put(noteOf(worker, note.name), { a: JSON.stringify(actors) });
    const open = { note, left: new Set(actors.map(([actor]) => actor)) };
    for (const [actor] of actors) this.#open.set(`${worker} ${actor}`, open);
    return note;
  }

  /** Notes that a turn is over, or was not claimed. @returns the note, if this was its last actor */
  over(worker: number, actor: number): Note | undefined {
    const key = `${worker} ${actor}`;
    const open = this.#open.get(key);
    this.#open.delete(key);
    open?.left.delete(actor);
    return open?.left.size === 0 ? open.note : undefined;
  }

  async remove({ worker, name }: Note): Promise<void> {
    await this.#rows.drop(noteOf(worker, name));
  }

  /** @param worker  undefined: the notes of all workers */
  async read(worker?: number): Promise<readonly Note[]> {
    const first = worker === undefined ? 'n#' : noteOf(worker, '').sk;
    const items = await this.#rows.all(NOTES, first, `${first}~`);
    return items.map(readNote);
  }
}

function readNote(item: Item): Note {
  const [, worker = '0', name = ''] = sortKey(item).split('#');
  return { worker: Number(worker), name, actors: JSON.parse(String(fieldsOf(item)['a'] ?? '[]')) };
}
