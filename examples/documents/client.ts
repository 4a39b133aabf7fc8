import { pack, readLog, unpack } from './pack.ts';

/** How a push ended: `unknown`, since the front end was gone before it answered. */
export type PushOutcome = 'written' | 'conflict' | 'unknown';

/** Somebody who pulls a document, adds to it and pushes it back. */
export class Client {
  readonly name: string;
  readonly #pushes: string[] = [];
  #count = 0;

  constructor(name: string) {
    this.name = name;
  }

  /** The lines of pushes that were confirmed, each with its document. */
  get confirmed(): readonly string[] {
    return this.#pushes;
  }

  /** One pull, one change, one push. */
  async change(url: string, id: string, bytes: Buffer): Promise<PushOutcome> {
    const { version, document } = await pull(url, id);
    const folder = new Map(document === undefined ? [] : unpack(document));
    this.#count += 1;
    const line = `${this.name}:${this.#count}`;
    folder.set('log.txt', Buffer.from(`${[...readLog(folder), line].join('\n')}\n`));
    folder.set(`files/${this.name}`, bytes);
    const headers = { 'x-version': String(version), 'x-client': this.name };
    const answer = await fetch(`${url}/${encodeURIComponent(id)}`, {
      method: 'PUT',
      headers,
      body: pack(folder),
    }).catch(() => undefined);
    await answer?.arrayBuffer().catch(() => undefined);
    if (answer?.status === 409) return 'conflict';
    if (answer?.status !== 200) return 'unknown';
    this.#pushes.push(`${id} ${line}`);
    return 'written';
  }
}

async function pull(url: string, id: string): Promise<{ version: number; document: Buffer | undefined }> {
  const answer = await fetch(`${url}/${encodeURIComponent(id)}`);
  const bytes = Buffer.from(await answer.arrayBuffer());
  if (answer.status === 404) return { version: 0, document: undefined };
  if (answer.status !== 200) throw new Error(`pull of ${id}: ${bytes.toString()}`);
  return { version: Number(answer.headers.get('x-version')), document: bytes };
}
