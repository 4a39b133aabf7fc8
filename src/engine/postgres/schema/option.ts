import { InvalidInput } from '../../../base/errors.ts';
import { type Check, custom } from '../../../base/options/options.ts';
import { refusal } from '../../../base/options/refusal.ts';
import { DEFAULT, SchemaName } from './name.ts';

const KIND = 'a name of 1 to 15 lower-case letters, digits and underscores that begins with no digit, such as "jobs"';

/**
 * A name that Postgres reads without quotes. The longest name that is built from it, of a capture's trigger, then has the 63
 * bytes that Postgres allows.
 */
const PLAIN = /^[a-z_][a-z0-9_]{0,14}$/;

/** The option `schema`. */
export const schemaName: Check<SchemaName> = custom(
  KIND,
  (value, place) => {
    if (typeof value !== 'string' || !PLAIN.test(value)) throw refusal(place, value, KIND);
    const reason = whyRefused(value);
    if (reason === undefined) return new SchemaName(value);
    throw new InvalidInput(`option "${place.field}" for ${place.what} cannot be "${value}": ${reason}`, {
      field: place.field,
    });
  },
  { default: DEFAULT },
);

function whyRefused(name: string): string | undefined {
  if (name.startsWith('pg_')) return 'Postgres keeps names that begin with pg_ for itself; give another name';
  if (name === 'information_schema') return 'it is the catalog of the SQL standard; give another name';
  if (name === 'public')
    return 'other roles may create objects in public, and Pawl needs a schema of its own; give another name';
  return isReserved(name) ? 'it is a key word of SQL; give another name' : undefined;
}

function isReserved(name: string): boolean {
  return RESERVED.includes(` ${name} `);
}

/** The words that Postgres 14 to 18 do not accept as the name of a schema: `pg_get_keywords()` with catcode R or T. */
const RESERVED =
  ' all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation ' +
  'column concurrently constraint create cross current_catalog current_date current_role current_schema current_time ' +
  'current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze ' +
  'from full grant group having ilike in initially inner intersect into is isnull join lateral leading left like limit ' +
  'localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary references ' +
  'returning right select session_user similar some symmetric system_user table tablesample then to trailing true union ' +
  'unique user using variadic verbose when where window with ';
