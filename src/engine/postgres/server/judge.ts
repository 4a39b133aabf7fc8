import { NotSupported } from '../../../base/errors.ts';

/**
 * SQL for the server's own name, for the extension Citus if the server has it, and for a default isolation above read committed. It is
 * a column of statements that come first anyway, such as the registration of a queue, outside of any transaction.
 */
export const SERVER: string = `pg_catalog.concat(pg_catalog.version(),
  (select ' citus ' || x.extversion from pg_catalog.pg_extension x where x.extname = 'citus'::name),
  (select ' in snapshots' where pg_catalog.current_setting('transaction_isolation') in ('repeatable read', 'serializable')))`;
const IN_SNAPSHOTS = / in snapshots$/;

/** The properties of a server that change how Pawl works with it. */
export interface ServerKind {
  /** The version of Citus, such as `13.2-1`. */
  readonly citus: string | undefined;
  /** By default, a transaction sees nothing that others commit after its first statement has begun. */
  readonly isInSnapshots: boolean;
}

/**
 * Reads the answer to {@link SERVER}.
 * @param address  the address that the engine is connected to
 * @throws NotSupported for a database that speaks the protocol of Postgres, but on which Pawl would break its promises
 */
export function judge(answer: string, address = ''): ServerKind {
  const server = answer.replace(IN_SNAPSHOTS, '');
  const other = OTHERS.find(({ sign }) => sign.test(server) || sign.test(address));
  if (other === undefined) {
    return { citus: / citus (\S+)$/.exec(server)?.[1], isInSnapshots: server !== answer };
  }
  throw new NotSupported(
    `this is ${other.name}, and Pawl works only with Postgres: ${other.reason}. Use Postgres 14 to 18; locks can be on DynamoDB, too`,
  );
}

const OTHERS: readonly { readonly name: string; readonly sign: RegExp; readonly reason: string }[] = [
  {
    name: 'CockroachDB',
    sign: /^CockroachDB\b/,
    reason: 'its advisory locks do not exclude other sessions, and it has no LISTEN and NOTIFY',
  },
  {
    name: 'YugabyteDB',
    sign: /^PostgreSQL [\d.]+-YB-/,
    reason:
      'its advisory locks may be stubs that exclude no session from anything, and it has no LISTEN and NOTIFY unless they were turned on',
  },
  {
    name: 'Aurora DSQL',
    sign: /^PostgreSQL \d+$|\.dsql(?:-\w+)?\.[\w-]+\.on\.aws\b/,
    reason: 'it has no functions in PL/pgSQL, no triggers, no advisory locks, and no LISTEN and NOTIFY',
  },
];
