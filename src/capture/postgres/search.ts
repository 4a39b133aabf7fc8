import { escapeHtml } from '../../base/escape-html.ts';
import { id, type Statement, statement, type Transaction, VERBATIM } from '../../engine/postgres/index.ts';
import { literal } from '../declare/sql-text.ts';
import type { Term } from '../search-query.ts';
import { operator } from './operators.ts';
import { type TargetOptions, TENANT_SETTING, WORDS } from './target/declared.ts';
import type { Target, TargetColumn } from './target/target.ts';

/** Where the next page begins: the window of candidates, and the last row of the page before. */
export interface SearchPosition {
  /** The last candidate of the window before: [order, key] as text. Undefined in the first window. */
  readonly window?: readonly [string, string];
  /** [rank, order, key] as text. Undefined at the beginning of a window. */
  readonly row?: readonly [string, string | null, string];
}

/** The condition of a search as SQL over the table `t`, and the values of its parameters. */
export interface Condition {
  readonly where: string;
  readonly query: string;
  /** The part of `where` that selects the tenant. */
  readonly tenant: string | undefined;
  readonly values: readonly unknown[];
}

const TEXT = { type: 'text', operators: 'pg_catalog' };

const MARK_FROM = '\u{E000}';
const MARK_TO = '\u{E001}';

/** The statements of searches in one target. */
export class SearchStatements {
  readonly #target: Target;
  readonly #options: TargetOptions;
  readonly #on: string;
  readonly #key: string;
  readonly #order: string;
  readonly #orderColumn: Pick<TargetColumn, 'type' | 'operators'>;

  constructor(target: Target, options: TargetOptions) {
    this.#target = target;
    this.#options = options;
    this.#on = id(target.schema, target.name);
    this.#key = `t.${id(target.key)}`;
    this.#order = `t.${id(options.order ?? target.key)}`;
    const key = { type: target.keyType, operators: target.keyOperators };
    this.#orderColumn = target.columns.find(({ name }) => name === options.order) ?? key;
  }

  condition(terms: readonly Term[], filters: readonly (readonly [string, string | null])[]): Condition {
    const values: unknown[] = [];
    const param = (value: unknown): string => `$${values.push(value)}`;
    const language = `${literal(this.#options.language)}::regconfig`;
    const words = terms.map((term) => queryOf(term, language, param));
    const conditions = words.map((word, index) => {
      const { text, not } = terms[index] ?? { text: '', not: false };
      // A piece of two letters occurs in nearly every text, and the index has no pieces shorter than three.
      const fragments = text.length < 3 ? [] : this.#options.fragments;
      const parts = fragments.map(
        (column) => `t.${id(column)}::text ilike ${param(`%${text.replaceAll(/[\\%_]/g, '\\$&')}%`)}::text`,
      );
      const found = [`t.${WORDS} @@ ${word}`, ...parts].join(' or ');
      // A word that the language ignores matches no row, so it does not restrict the search.
      return not ? `not (${found})` : `(numnode(${word}) = 0 or ${found})`;
    });
    const equal = filters.map(([column, value]) => {
      const { type, operators } = this.#target.columns.find(({ name }) => name === column) ?? TEXT;
      const equal = operator('=', operators);
      return value === null ? `t.${id(column)} is null` : `t.${id(column)} ${equal} ${param(value)}::text::${type}`;
    });
    const tenant = equal[filters.findIndex(([column]) => column === this.#options.tenant)];
    const positive = words.filter((_, index) => terms[index]?.not === false);
    return { where: [...conditions, ...equal].join(' and '), query: `(${positive.join(' && ')})`, tenant, values };
  }

  /** Counts matches up to `most`, and says whether the query has a word at all. */
  count({ where, query, values }: Condition, most: number): { statement: Statement; values: unknown[] } {
    const text = `
select numnode(${query}) as words, count(*)::int as matches from (select 1 from ${this.#on} t where ${where} limit ${most}) m`;
    return { statement: statement('capture.search_count', text, VERBATIM), values: [...values] };
  }

  /** All matches, in the order of the projection, up to the cap. */
  narrow(condition: Condition, place: SearchPosition, cap: number): { text: string; values: unknown[] } {
    return this.#candidates(condition, place, `${this.#on} t`, cap);
  }

  /**
   * The first matches of a walk through this many rows in the order of the projection. The walk stops at the last match that is
   * needed. On a distributed table, a walk would bring the rows to the coordinator. So there each shard finds its first
   * matches, in the way that its planner prefers.
   */
  wide(condition: Condition, place: SearchPosition, cap: number, rows: number): { text: string; values: unknown[] } {
    const values = [...condition.values];
    if (this.#target.isDistributed) {
      const where = `${condition.where} and ${this.#order} is not null`;
      return this.#candidates({ ...condition, where }, place, `${this.#on} t`, cap, 'desc');
    }
    const own = condition.tenant === undefined ? '' : ` and ${condition.tenant}`;
    const after = this.#after(place, values);
    const walk = `(select t.* from ${this.#on} t where ${this.#order} is not null${own}${after}
      order by ${this.#order} desc, ${this.#key} desc limit ${rows}) t`;
    return this.#candidates({ ...condition, values }, {}, walk, cap, 'desc'); // in another order all these rows would be sorted
  }

  #candidates(
    condition: Condition,
    place: SearchPosition,
    from: string,
    cap: number,
    order = 'desc nulls last', // only a scan of the index backwards gives `desc`
  ): { text: string; values: unknown[] } {
    const values = [...condition.values];
    const after = this.#after(place, values);
    const text = `
select ${this.#key} as key, ${this.#order} as ord, ts_rank(t.${WORDS}, ${condition.query}, 1) as rank
from ${from} where ${condition.where}${after}
order by ${this.#order} ${order}, ${this.#key} desc limit ${cap}`;
    return { text, values };
  }

  #after({ window }: SearchPosition, values: unknown[]): string {
    if (window === undefined) return '';
    const [order, key] = window.map((value) => `$${values.push(value)}::text`);
    const { type, operators } = this.#orderColumn;
    const { keyType, keyOperators } = this.#target;
    const [o, k] = [`${order}::${type}`, `${key}::${keyType}`];
    if (operators === keyOperators) {
      return ` and row(${this.#order}, ${this.#key}) ${operator('<', operators)} row(${o}, ${k})`;
    }
    // A comparison of row values has one operator, which Postgres would look for in the search path.
    const [less, same] = [operator('<', operators), operator('=', operators)];
    return ` and (${this.#order} ${less} ${o} or ${this.#order} ${same} ${o} and ${this.#key} ${operator('<', keyOperators)} ${k})`;
  }

  /** One page of the candidates, best first, with the found words marked. */
  page(
    candidates: { text: string; values: unknown[] },
    { query, tenant }: Condition,
    place: SearchPosition,
    limit: number,
  ): { statement: Statement; values: unknown[] } {
    const values = [...candidates.values];
    const param = (value: unknown, type: string): string => `$${values.push(value)}::text::${type}`;
    const { keyType, keyOperators, columns } = this.#target;
    const { type: orderType, operators } = this.#orderColumn;
    let after = '';
    if (place.row !== undefined) {
      const [rank, order, key] = place.row;
      const [r, k] = [param(rank, 'real'), param(key, keyType)];
      const o = order === null ? undefined : param(order, orderType);
      const sameRank =
        o === undefined
          ? `(c.ord is null and c.key ${operator('<', keyOperators)} ${k})`
          : `(c.ord is null or c.ord ${operator('<', operators)} ${o} or (c.ord ${operator('=', operators)} ${o} and c.key ${operator('<', keyOperators)} ${k}))`;
      after = `where c.rank < ${r} or (c.rank = ${r} and ${sameRank})`;
    }
    const shown = columns.map(({ name }) => `${literal(name)}, t.${id(name)}`).join(', ');
    const said = this.#options.text.map((column) => `left(t.${id(column)}::text, 20000)`).join(', ');
    const marks = `StartSel=${MARK_FROM}, StopSel=${MARK_TO}, MaxFragments=2, MaxWords=12, MinWords=4, FragmentDelimiter=" … "`;
    // One node has the tenant's rows. Only a condition in the statement itself says which node that is.
    const own = tenant === undefined || this.#target.tenant === undefined ? '' : ` and ${tenant}`;
    // Citus accepts a statement if each of its parts reads either the table alone, or the results of other parts.
    const text = `
with candidate as materialized (${candidates.text}
), page as materialized (
  select c.* from candidate c ${after} order by c.rank desc, c.ord desc nulls last, c.key desc limit ${limit + 1}
), shown as materialized (
  select ${this.#key} as key, pg_catalog.json_build_object(${shown}) as row,
    ts_headline(${literal(this.#options.language)}::regconfig, pg_catalog.concat_ws(' … ', ${said}), ${query}, ${literal(marks)}) as snippet
  from ${this.#on} t where ${this.#key} ${operator('=', keyOperators)} any (select p.key from page p)${own}
)
select w.place as window, r.found as rows
from (
  select pg_catalog.json_build_object('n', count(*), 'order', (pg_catalog.array_agg(c.ord::text order by c.ord desc nulls last, c.key desc))[count(*)::int],
    'key', (pg_catalog.array_agg(c.key::text order by c.ord desc nulls last, c.key desc))[count(*)::int]) as place from candidate c
) w cross join (
  select pg_catalog.json_agg(pg_catalog.json_build_object('rank', p.rank::text, 'order', p.ord::text, 'key', p.key::text, 'row', s.row, 'snippet', s.snippet)
    order by p.rank desc, p.ord desc nulls last, p.key desc) as found
  from page p join shown s on s.key ${operator('=', keyOperators)} p.key
) r`;
    return { statement: statement('capture.search_page', text, VERBATIM), values };
  }
}

const SETTINGS: Statement = statement(
  'capture.search_settings',
  `
select set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), set_config('work_mem', '32MB', true),
  set_config('statement_timeout', $1::text, true), set_config('pawl.tenant', $2::text, true)`,
);

/**
 * Sets the planner settings, the time limit and the tenant for the rest of the transaction. Other nodes get only settings made
 * by `set local`, and only after Citus was told to pass them on. For each setting after that, Citus sends them the text of the
 * whole message. So only one setting comes after that.
 */
export async function setUp(tx: Transaction, target: Target, timeoutMs: number, tenant: string): Promise<void> {
  if (!target.isDistributed) {
    await tx.query(SETTINGS, [String(timeoutMs), tenant]);
    return;
  }
  const settings = [
    `set local statement_timeout = ${timeoutMs}`,
    'set local enable_seqscan = off',
    'set local jit = off',
    "set local work_mem = '32MB'",
    "set local citus.propagate_set_commands = 'local'",
    `set local ${TENANT_SETTING} = ${literal(tenant)}`,
  ];
  await tx.client.query({ text: `-- capture.search_settings\n${settings.join(';')}` });
}

/** Puts the found words between `<mark>` and `</mark>`, and escapes everything else for HTML. */
export function toHtml(snippet: string): string {
  return escapeHtml(snippet).replaceAll(MARK_FROM, '<mark>').replaceAll(MARK_TO, '</mark>');
}

function queryOf({ kind, text }: Term, language: string, param: (value: unknown) => string): string {
  if (kind === 'phrase') return `phraseto_tsquery(${language}, ${param(text)}::text)`;
  if (kind === 'word') return `plainto_tsquery(${language}, ${param(text)}::text)`;
  // Postgres splits the text between the quotes into words; only these two characters have a meaning there.
  const quoted = `'${text.replaceAll(/['\\]/g, ' ')}':*`;
  return `to_tsquery(${language}, ${param(quoted)}::text)`;
}
