import { createHash } from 'node:crypto';
import type { Statement } from '../sql.ts';

/**
 * The schema of Pawl's tables and functions. All SQL of Pawl, in `sql/` and in `src/`, calls it `pawl`. If the schema has
 * another name, the text is rewritten before it is sent. The rewriting is a list of exact words and no parser. That is enough
 * because values are parameters: no text of a user is in a statement, except in an e'' literal, or if the statement is declared
 * as {@link Statement.isVerbatim}. `npm run rules` checks that no statement names the schema in a way that the list misses.
 *
 * Everything that two schemas of one database would share follows the name, too: channels, advisory locks, triggers of captures
 * and the role that owns their functions.
 */
export class SchemaName {
  readonly name: string;
  /** True: the name is `pawl`, and nothing is rewritten. */
  readonly isDefault: boolean;
  readonly #known = new WeakMap<Statement, Statement>();

  constructor(name: string) {
    this.name = name;
    this.isDefault = name === DEFAULT;
    named.add(name);
  }

  /** SQL of Pawl, in the form in which it is sent. */
  text(sql: string): string {
    return this.isDefault ? sql : sql.replace(WORDS, (word) => this.#word(word));
  }

  /** A statement in the form in which it is sent. One of Pawl's is rewritten, once; one of the program's stays as it is. */
  statement(given: Statement): Statement {
    if (this.isDefault || given.isOwn !== true || given.isVerbatim === true) return given;
    const known = this.#known.get(given);
    if (known !== undefined) return known;
    const made = { ...given, text: this.text(given.text) };
    this.#known.set(given, made);
    return made;
  }

  /** The channel that all processes with this schema listen to: `queue`, `actor`. */
  channel(topic: string): string {
    return `${this.name}_${topic}`;
  }

  /** The value that is combined with the seed of each hash that a lock uses. */
  get salt(): string {
    return digest(this.name).readBigInt64BE(0).toString();
  }

  /**
   * The seed with which SQL of this schema hashes a text, if the SQL itself names the seed 0: for a statement that is sent as it
   * stands, before or without the hash function of the schema.
   */
  get seed(): string {
    return this.isDefault ? '0' : this.salt;
  }

  #word(word: string): string {
    if (KEPT.test(word)) return word;
    if (word === `${HASH}(`) return `${this.name}.${word}`;
    if (/^\d/.test(word)) return String(lockNumber(this.name) + (Number(word) & 1));
    return word.replace(DEFAULT, this.name);
  }
}

/** The default name of the schema, and the word for the schema in all SQL of Pawl. */
export const DEFAULT = 'pawl';
const HASH = 'hashtextextended';

/**
 * Words that stay as they are: literals that quoted() has made, and settings, which belong to the session and not to a schema.
 */
const KEPT = /^(?:e'|current_setting|set_config)/;

/**
 * The words that name the schema, or something that two schemas must not share. The numbers are the classes of advisory locks with two
 * numbers: of migrations, and of workers with open transactions.
 */
const WORDS = new RegExp(
  [
    String.raw`(?<!\w)e'(?:[^'\\]|\\.|'')*'`,
    String.raw`(?:current_setting|set_config)\('pawl\.\w+'`,
    String.raw`(?<![\w".$])pawl\.(?=[a-z%])`,
    String.raw`'pawl'`,
    String.raw`\bschema pawl\b`,
    String.raw`(?<![\w"])pawl_capture(?![a-z0-9])`,
    String.raw`'pawl_(?:queue|actor)'`,
    String.raw`(?<![\w.])${HASH}\(`,
    String.raw`\b188543575[67]\b`,
  ].join('|'),
  'gs',
);

function digest(name: string): Buffer {
  return createHash('sha256').update(`pawl schema ${name}`).digest();
}

/** An even number of four bytes. */
function lockNumber(name: string): number {
  return digest(name).readUInt32BE(8) & 0x7f_ff_ff_fe;
}

/** The schema names of all engines of this process. */
const named = new Set<string>([DEFAULT]);

/** The schema of Pawl that a message of the server names, if any. */
export function schemaIn(message: string): string | undefined {
  return [...named].find((name) => new RegExp(String.raw`\b${name}\.|\bschema "?${name}\b`).test(message));
}
