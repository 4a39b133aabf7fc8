import { InvalidInput } from '../../base/errors.ts';
import { checkOptions, integer, text } from '../../base/options/options.ts';
import { type InferOutput, type StandardSchemaV1, schemaOption, validate } from '../../base/options/schema.ts';
import type { MessageFilter, MessageRow } from '../store.ts';
import type { Effects } from './effects.ts';
import { Message } from './message.ts';

/** Which messages of a name a turn takes, and how. */
export interface ReceiveOptions<S extends StandardSchemaV1 | undefined = undefined> {
  /** Any Standard Schema: the message has its output as payload. Default: the payload as it was sent. */
  readonly schema?: S | undefined;
  /** The largest number of messages, the oldest first; the others wake the actor again. 1 to 1000, default 1000. */
  readonly limit?: number | undefined;
}

/** A payload: the output of a schema. */
export type PayloadOf<S> = [S] extends [StandardSchemaV1] ? InferOutput<S> : unknown;

const MOST = 1000;
const receiveShape = {
  name: text({ min: 1, max: 200 }),
  schema: schemaOption(),
  limit: integer({ min: 1, max: MOST, default: MOST }),
};

/**
 * Takes messages from the inbox of an actor for one turn. A turn gets each message once; the turn's commit removes the message
 * from the database.
 */
export class Inbox {
  readonly #effects: () => Effects;
  readonly #read: (which: MessageFilter) => Promise<MessageRow[]>;

  /** @param effects  of the turn, while it runs @throws Conflict  once it is over */
  constructor(effects: () => Effects, read: (which: MessageFilter) => Promise<MessageRow[]>) {
    this.#effects = effects;
    this.#read = read;
  }

  /** @param name  undefined: any name @throws InvalidInput  the schema refuses a payload */
  async take(name: string | undefined, options: ReceiveOptions<StandardSchemaV1 | undefined>): Promise<Message[]> {
    const { received, cut } = this.#effects();
    const { schema, limit } =
      name === undefined
        ? { schema: undefined, limit: MOST }
        : checkOptions('receive', { ...options, name }, receiveShape);
    const found = await this.#read({ name, limit, except: [...received] });
    const messages = await Promise.all(
      found.map(async (row) => new Message(row, await payloadOf(schema, row), this.#effects)),
    );
    this.#effects();
    for (const { id } of messages) received.add(id);
    if (messages.length >= limit) cut.add(name ?? ANY);
    return messages;
  }
}

/** Represents all names: no message has an empty name. */
export const ANY = '';

async function payloadOf(schema: StandardSchemaV1 | undefined, { id, name, payload }: MessageRow): Promise<unknown> {
  if (schema === undefined) return payload;
  try {
    return await validate(schema, payload, `message ${id} ("${name}")`);
  } catch (error) {
    if (!(error instanceof InvalidInput)) throw error;
    throw new InvalidInput(`${error.message}; it stays in the inbox until a turn takes it`, {
      field: name,
      cause: error,
    });
  }
}
