// A function in SQL without any SET is not pinned (src/engine/postgres/migrate/pin.ts): it resolves names by the search path of its caller.
// So a function that is called from outside must be pinned. Fails on statements and views that call a function that is not pinned. The
// functions in EXACT may be called, because they name exactly what they call.
import { readdirSync, readFileSync } from 'node:fs';

const EXACT = [
  'actor_isolation_reason',
  'capture_lock_key',
  'lock_mode',
  'queue_error',
  'queue_has_watches',
  'queue_size',
];

const migrations = readdirSync('sql', { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.sql'))
  .toSorted((one, other) => one.localeCompare(other))
  .map((file) => readFileSync(`sql/${file}`, 'utf8').replace(/--.*$/gm, ''));

/** Whether each function is pinned. The last definition of a name counts. */
const isPinned = new Map();
for (const [, name, head] of migrations
  .join('\n')
  .matchAll(/create\s+(?:or replace\s+)?function\s+pawl\.(\w+)(.*?)\bas\s+\$/gs)) {
  isPinned.set(name, !/\blanguage\s+sql\b/.test(head) || /\bset\s+\w+\s*=|planner:/.test(head));
}

const views = migrations.flatMap((text) => text.match(/create\s+(?:or replace\s+)?view\s.*?;/gs) ?? []);
const statements = readdirSync('src', { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts') && !file.endsWith('.gen.ts'))
  .map((file) => readFileSync(`src/${file}`, 'utf8').replace(/\/\*[^]*?\*\/|\s\/\/ .*$/gm, ''));

const called = [...views, ...statements].flatMap((text) =>
  [...text.matchAll(/\bpawl\.(\w+)\(/g)].map(([, name]) => name),
);
const found = [...new Set(called)].filter((name) => isPinned.get(name) === false && !EXACT.includes(name));

for (const name of found) console.error(`pawl.${name} is called from outside, and is not pinned`);
if (found.length > 0) {
  console.error(
    'Add "set search_path = pg_catalog, pg_temp" to it, or name exactly what it calls: see scripts/check-pins.mjs.',
  );
  process.exit(1);
}
console.log(`pins: ${isPinned.size} functions, and what is called from outside is pinned`);
