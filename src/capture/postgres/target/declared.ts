import { id } from '../../../engine/postgres/index.ts';

/** The declared table that a projection writes. */
export interface TargetOptions {
  readonly into: string;
  readonly columns: Readonly<Record<string, string>>;
  readonly text: readonly string[];
  readonly fragments: readonly string[];
  readonly order: string | undefined;
  readonly tenant: string | undefined;
  readonly language: string;
  readonly distribute: Distribution | undefined;
}

/** The setting of a session that names the tenant whose rows the session sees. */
export const TENANT_SETTING = 'pawl.tenant';

/** The column of the target that holds the words of the columns in `text`. */
export const WORDS = 'pawl_words';

/** How Citus spreads the rows of a target over nodes. */
export interface Distribution {
  readonly by: 'id' | 'tenant';
  readonly shards: number | undefined;
}

/** Quotes the parts of a name that the user writes; the user quotes a name that needs it. */
export function quoted(name: string): string {
  return name.includes('"')
    ? name
    : name
        .split('.')
        .map((part) => id(part))
        .join('.');
}
