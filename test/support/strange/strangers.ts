import pg from 'pg';
import { type Argument, type Call, callsIn } from './parse-tree.ts';

/**
 * What somebody who may create functions in `public` would make to have them called by Pawl: for each function, operator and aggregate
 * that its SQL names, one of the same name for the very types that stand there, which fits better than one that takes others. It says
 * that it was called, and does what was asked for.
 */
export interface Strangers {
  /** How many there are. */
  readonly count: number;
  /** Those that could not be made, and why. */
  readonly unmade: readonly string[];
}

/** Makes every connection of this process tell what it hears from its server. @returns the end of it */
export function overhear(hear: (notice: { message: string; detail: string }) => void): () => void {
  const connect: (...args: unknown[]) => unknown = Reflect.get(pg.Client.prototype, 'connect');
  const overheard = function (this: pg.Client, ...args: unknown[]): unknown {
    this.on('notice', ({ message = '', detail = '' }) => hear({ message, detail }));
    return Reflect.apply(connect, this, args);
  };
  Reflect.set(pg.Client.prototype, 'connect', overheard);
  return () => void Reflect.set(pg.Client.prototype, 'connect', connect);
}

/** Sessions of the database tell how each statement was understood. Only for a superuser's database of a test's own. */
export async function explainEverything(admin: pg.Client, database: string): Promise<void> {
  // `fatal`: what is meant for the client does not fill the server's log.
  for (const setting of ['debug_print_parse = on', 'debug_pretty_print = off', "log_min_messages = 'fatal'"])
    await admin.query(`alter database "${database}" set ${setting}`);
  await admin.query(`alter database "${database}" set client_min_messages = 'log'`);
}

/** The calls in what was overheard, each once. */
export class CallLog {
  readonly #trees = new Set<string>();
  readonly #calls = new Map<string, Call>();

  hear({ message, detail }: { message: string; detail: string }): void {
    if (!message.startsWith('parse tree') || this.#trees.has(detail)) return;
    this.#trees.add(detail);
    for (const call of callsIn(detail)) this.#calls.set(JSON.stringify(call), call);
  }

  get calls(): readonly Call[] {
    return [...this.#calls.values()];
  }
}

/** Makes the strangers in `public`, as the role that `client` is at that moment. The calls are those of the same server. */
export async function makeStrangers(client: pg.Client, calls: readonly Call[]): Promise<Strangers> {
  const named = await namesOf(client, calls);
  const texts = new Map<string, string>();
  for (const call of calls) {
    const name = named.get(`${call.kind === 'operator' ? 'o' : 'f'}${call.oid}`);
    if (name !== undefined) for (const args of signatures(call)) add(texts, { ...name, call, args }, named);
  }
  const unmade: string[] = [];
  let count = 0;
  for (const [signature, text] of texts) {
    try {
      await client.query(text);
      count += 1;
    } catch (error) {
      if (!isThere(error)) unmade.push(`${signature}: ${String(error)}`);
    }
  }
  return { count, unmade };
}

interface Name {
  readonly name: string;
  readonly set: boolean;
  readonly result: string;
}

/** What is called by an OID: `f` for functions and aggregates, `o` for operators, `t` for types. Of Postgres' own only. */
async function namesOf(client: pg.Client, calls: readonly Call[]): Promise<Map<string, Name>> {
  const types = calls.flatMap(({ args, result }) => [...args.map(({ type }) => type), result]);
  const { rows } = await client.query<Name & { kind: string; oid: string }>(
    `select 'f' as kind, p.oid::text as oid, p.proname::text as name, p.proretset as set, t.typtype::text as result
     from pg_proc p join pg_type t on t.oid = p.prorettype
     where p.oid = any ($1::oid[]) and p.pronamespace = 'pg_catalog'::regnamespace
     union all
     select 'o', o.oid::text, o.oprname::text, false, 'b' from pg_operator o
     where o.oid = any ($2::oid[]) and o.oprnamespace = 'pg_catalog'::regnamespace
     union all
     select 't', t.oid::text, format('%I.%I', n.nspname, t.typname), false, t.typtype::text from pg_type t join pg_namespace n on n.oid = t.typnamespace
     where t.oid = any ($3::oid[])`,
    [
      calls.filter(({ kind }) => kind !== 'operator').map(({ oid }) => oid),
      calls.filter(({ kind }) => kind === 'operator').map(({ oid }) => oid),
      [...new Set([...types, TEXT])].filter((type) => type !== undefined),
    ],
  );
  return new Map(rows.map(({ kind, oid, ...name }) => [`${kind}${oid}`, name]));
}

const TEXT = '25';
const UNKNOWN = '705';

/** The types for which there may be something that fits better: those that stand there, and for a literal text or its neighbour's. */
function signatures({ args }: Call): (readonly string[])[] {
  const written = args.filter(({ isDefault }, nth) => !(isDefault && args.slice(nth).every((rest) => rest.isDefault)));
  // Of many literals all are taken for one or the other, or there would be thousands.
  if (written.length > 3) return [0, 1].map((nth) => written.map((arg) => choices(arg, written).at(nth) ?? TEXT));
  let found: (readonly string[])[] = [[]];
  for (const arg of written) {
    const types = [...new Set(choices(arg, written))];
    found = found.flatMap((before) => types.map((type) => [...before, type]));
  }
  return found;
}

/** What stands there as it is, and a literal also as a text, or as what its neighbour is. */
function choices({ type, isLiteral }: Argument, all: readonly Argument[]): string[] {
  const others = isLiteral && all.length === 2 ? all.map((other) => other.type) : [];
  const types = [type, ...(isLiteral ? [TEXT] : [type]), ...others];
  return types.filter((each) => each !== undefined).map((each) => (each === UNKNOWN ? TEXT : each));
}

interface Overload extends Name {
  readonly call: Call;
  readonly args: readonly string[];
}

function add(texts: Map<string, string>, wanted: Overload, named: Map<string, Name>): void {
  const args = wanted.args.map((oid) => named.get(`t${oid}`)?.name);
  if (args.includes(undefined) || args.length !== new Set(args.keys()).size) return;
  const signature = `${wanted.name}(${args.join(', ')})`;
  if (texts.has(signature) || (wanted.call.kind === 'operator' && args.length === 0)) return;
  const result = named.get(`t${wanted.call.result}`)?.name ?? 'text';
  const values = args.map((_, nth) => `$${nth + 1}`);
  const said = `raise warning 'a stranger was called: %, by %', ${literal(signature)}, pg_catalog.left(pg_catalog.current_query(), 4000)`;
  switch (wanted.call.kind) {
    case 'operator': {
      const [left, right] = args.length === 2 ? args : [undefined, args[0]];
      const own = `public."stranger ${texts.size}"`;
      const sides = [...(left === undefined ? [] : [`leftarg = ${left}`]), `rightarg = ${right}`].join(', ');
      const value =
        args.length === 2 ? `$1 operator(pg_catalog.${wanted.name}) $2` : `operator(pg_catalog.${wanted.name}) $1`;
      texts.set(
        signature,
        `${refuseSame(`pg_catalog.to_regoperator(${literal(`pg_catalog.${wanted.name}(${[left ?? 'none', right].join(', ')})`)})`)}
        create function ${own}(${args.join(', ')}) returns ${result} language plpgsql as $$ begin ${said}; return ${value}; end $$;
        create operator public.${wanted.name} (${sides}, function = ${own})`,
      );
      return;
    }
    case 'aggregate': {
      const own = `public."stranger ${texts.size}"`;
      texts.set(
        signature,
        `${refuseSame(`pg_catalog.to_regprocedure(${literal(`pg_catalog.${signature}`)})`)}
        create function ${own}(${['text', ...args].join(', ')}) returns text language plpgsql as $$ begin ${said}; return 'x'; end $$;
        create aggregate public."${wanted.name}" (${args.join(', ') || '*'}) (sfunc = ${own}, stype = text)`,
      );
      return;
    }
    case 'function': {
      const own = `pg_catalog."${wanted.name}"(${values.join(', ')})`;
      const body =
        result === 'pg_catalog.void'
          ? `perform ${own}; return;`
          : wanted.set
            ? `return query select * from ${own};`
            : `return ${own};`;
      texts.set(
        signature,
        `${refuseSame(`pg_catalog.to_regprocedure(${literal(`pg_catalog.${signature}`)})`)}
        create function public."${wanted.name}"(${args.join(', ')}) returns ${wanted.set ? 'setof ' : ''}${result} language plpgsql as $$ begin ${said}; ${body} end $$`,
      );
    }
  }
}

/** Where Postgres has the very same, that is found first, and there is nothing to be gained. */
function refuseSame(found: string): string {
  return `do $$ begin if ${found} is not null then raise duplicate_function; end if; end $$;`;
}

function isThere(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.code === '42723';
}

function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
