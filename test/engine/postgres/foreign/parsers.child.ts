// A program that has changed how node-postgres reads answers: for all of its queries, or for those of one pool.
import pg from 'pg';
import { postgres } from '../../../../src/engine/postgres/index.ts';
import { CAPABILITIES } from '../../../support/strange/capabilities.ts';

type Parser = (text: string) => unknown;

const json = (parse: Parser): Record<number, Parser> => ({ 114: parse, 3802: parse });
const time = (parse: Parser): Record<number, Parser> => ({ 1184: parse, 1114: parse, 1082: parse });

const PARSERS: Readonly<Record<string, Readonly<Record<number, Parser>>>> = {
  'json as text': json(String),
  'json with BigInt': json((text) =>
    JSON.parse(text, (_, value: unknown) => (Number.isInteger(value) ? BigInt(value as number) : value)),
  ),
  'json with camelCase keys': json((text) => camel(JSON.parse(text))),
  'times as text': time(String),
  'times as objects': time((text) => ({ toMillis: () => Date.parse(text) })),
  'booleans as text': { 16: String },
  'numbers as BigInt and float': {
    20: BigInt,
    1700: Number.parseFloat,
    21: String,
    23: String,
    1007: String,
    1009: String,
  },
};

function camel(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(camel);
  if (value === null || typeof value !== 'object') return value;
  const key = (name: string): string => name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [key(name), camel(each)]));
}

const [, , url = '', which = '', of = '', capability = ''] = process.argv;
const parsers = PARSERS[which] ?? {};
const isForAll = of === 'all queries';
if (isForAll) for (const [oid, parse] of Object.entries(parsers)) pg.types.setTypeParser(Number(oid), parse);
const types = { getTypeParser: (oid: number): Parser => parsers[oid] ?? pg.types.getTypeParser(oid) };
const pool = isForAll ? undefined : new pg.Pool({ connectionString: url, max: 12, types }).on('error', () => {});
const engine = postgres(pool ?? url, { max: 12 });
let problem: string | null = null;
try {
  await engine.migrate();
  if ((await engine.status()).applied.some(({ appliedAt }) => !(appliedAt instanceof Date)))
    throw new Error('applied at?');
  await CAPABILITIES[capability]?.(engine);
} catch (error) {
  problem = error instanceof Error ? (error.stack ?? error.message) : String(error);
}
process.stdout.write(`${JSON.stringify({ problem })}\n`, () => process.exit());
