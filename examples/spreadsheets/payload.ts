import * as v from 'valibot';
import type { Cell } from './sheet.ts';

/** What a create asks for: the head of the spreadsheet, and its first rows. */
export interface Create {
  readonly columns: string[];
  readonly rows: Cell[][];
}

/** What an update asks for: see `Change`. */
export interface Update {
  readonly rows: Cell[][];
  readonly remove: string[];
}

/** A schema that fills in what may be left out. */
export type Payload<T extends object, Optional extends keyof T> = v.GenericSchema<
  Omit<T, Optional> & { readonly [K in Optional]?: T[K] | undefined },
  T
>;

// Control characters, half surrogate pairs and the like have no place in XML, which is what .xlsx is made of.
const line = v.pipe(
  v.string(),
  v.maxLength(2000),
  v.regex(/^[^\p{Cc}\p{Cs}\uFFFE\uFFFF]*$/u, 'must be one line of printable characters'),
  v.trim(),
);

const cell: v.GenericSchema<Cell> = v.union(
  [
    v.pipe(
      line,
      v.transform((text) => (text === '' ? null : text)),
    ),
    v.pipe(v.number(), v.finite()),
    v.boolean(),
    v.null(),
  ],
  'a cell is a text of one line, at most 2000 characters, a number, true, false or null',
);

const rows = v.optional(v.pipe(v.array(v.array(cell)), v.maxLength(20_000)), []);
const remove = v.optional(v.pipe(v.array(line), v.maxLength(20_000)), []);

const columns = v.pipe(
  v.array(v.pipe(line, v.nonEmpty('a column needs a name'), v.maxLength(200))),
  v.minLength(1, 'a sheet needs at least one column'),
  v.maxLength(100),
  v.check((names) => new Set(names).size === names.length, 'two columns have the same name'),
);

const id = v.pipe(
  v.string(),
  v.regex(/^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/, 'must be 1 to 63 of a-z, 0-9 and hyphens, such as "city-figures"'),
);

export const CreatePayload: Payload<Create, 'rows'> = v.strictObject({ columns, rows });

export const UpdatePayload: Payload<Update, 'rows' | 'remove'> = v.pipe(
  v.strictObject({ rows, remove }),
  v.check((asked) => asked.rows.length + asked.remove.length > 0, 'an update needs rows, or names of rows to remove'),
);

/** What `POST /spreadsheets` takes: the payload of a create, and the spreadsheet's name in URLs and file names. */
export const CreateBody: Payload<Create & { readonly id: string }, 'rows'> = v.strictObject({ id, columns, rows });
