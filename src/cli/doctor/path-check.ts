import type { PathSchema } from '../../engine/postgres/inspect.ts';
import { type Finding, ok, warn } from './finding.ts';

/**
 * Whether other roles can offer code of theirs to statements that name a function or an operator without a schema. Pawl's
 * statements do not call such code if Postgres' own functions are found first. Statements of the program do, and so does the
 * SQL that it gives to Pawl: `build`, links, conditions.
 */
export function checkPath(path: readonly PathSchema[]): Finding {
  const names = path.map(({ name }) => name);
  const before = names.slice(0, names.indexOf('pg_catalog')).filter((name) => !name.startsWith('pg_temp'));
  if (before.length > 0) {
    const fix = 'take pg_catalog out of the setting search_path: it is then the first';
    return warn(
      'search path',
      `${before.join(', ')} comes before pg_catalog, so its functions and operators are called instead of those of Postgres`,
      fix,
    );
  }
  const open = path.filter(({ creators }) => creators.length > 0);
  if (open.length === 0) return ok('search path', `${names.join(', ')}: no other role may create there`);
  const who = open.map(({ name, creators }) => `in ${name}: ${creators.map(showRole).join(', ')}`).join('; ');
  const fix = open
    .map(({ name, creators }) => `revoke create on schema ${name} from ${creators.join(', ')};`)
    .join(' ');
  return warn(
    'search path',
    `other roles may create functions that a statement may call if it names no schema: ${who}`,
    fix,
  );
}

function showRole(name: string): string {
  return name === 'public' ? 'everybody' : name;
}
