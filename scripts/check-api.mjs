// docs/http.md names every route of the API and every permission of each role, and none that does not exist. After a build.
import { readFileSync } from 'node:fs';
import { ROUTES } from '../dist/http/app.js';
import { PERMISSIONS, principalOf, ROLES } from '../dist/http/auth/permission.js';
import { PLAIN_ROUTES } from '../dist/http/plain-routes.js';

/** Routes of the buttons of `pawl dev`, which are not for programs. */
const OF_DEV = /^\/dev\b/;
const docs = readFileSync(new URL('../docs/http.md', import.meta.url), 'utf8');
const problems = [...checkPaths(), ...checkRoles()];
for (const problem of problems) console.error(`docs/http.md ${problem}`);
if (problems.length > 0) process.exit(1);
console.log(`API: ${ROUTES.length} routes and ${PERMISSIONS.length} permissions, each documented`);

function checkPaths() {
  const served = new Set(
    [...ROUTES, ...PLAIN_ROUTES].map(({ path }) => path.replace(/^\/api\/v1/, '')).filter((path) => !OF_DEV.test(path)),
  );
  const named = new Set(['/healthz', '/readyz', '/metrics', '/openapi.json'].filter((path) => docs.includes(path)));
  for (const row of section('## What there is', '\n\nThe commands').matchAll(/^\| (`[^|]+`)\s*\|/gm)) {
    let before = '';
    for (const [, words = ''] of row[1].matchAll(/`([^`]+)`/g)) {
      const path = words.replace(/^[A-Z]+ /, '').replace(/\?.*$/, '');
      if (/^[A-Z]+$/.test(path)) continue; // a method alone, which belongs to the path after it
      if (!path.startsWith('…/')) before = path.replace(/\}[^}]*$/, '}');
      named.add(`/${path.startsWith('…/') ? `${before}${path.slice(1)}` : path}`);
    }
  }
  return [
    ...[...served].filter((path) => !named.has(path)).map((path) => `does not name the route ${path}`),
    ...[...named].filter((path) => !served.has(path)).map((path) => `names ${path}, which is no route`),
  ];
}

/** A row lists what a role may do in addition to the role before it. A row without a name continues the row before it. */
function checkRoles() {
  const problems = [];
  /** @type {Map<string, string[]>} */
  const documented = new Map(ROLES.map((role) => [role, []]));
  let role;
  let before = [];
  for (const [, name, words] of section('### Who may what', '\n\nOr give').matchAll(/^\| (`\w+`|\s*)\s*\| (.+)\|$/gm)) {
    if (name.trim() !== '') {
      before = role === undefined ? [] : documented.get(role);
      role = name.trim().replaceAll('`', '');
      documented.set(role, [...before]);
    }
    if (role !== undefined) documented.get(role).push(...[...words.matchAll(/`([^`]+)`/g)].map(([, word]) => word));
  }
  for (const [of, names] of documented) {
    const { permissions } = principalOf({ name: of, role: of }, { by: 'token', isReadOnly: false });
    for (const one of permissions) if (!names.includes(one)) problems.push(`does not say that ${of} has ${one}`);
    for (const one of names) if (!permissions.has(one)) problems.push(`says that ${of} has ${one}`);
  }
  return problems;
}

function section(from, to) {
  const start = docs.indexOf(from);
  const end = docs.indexOf(to, start);
  if (start < 0 || end < 0) throw new Error(`docs/http.md has no part from "${from}" to "${to.trim()}"`);
  return docs.slice(start, end);
}
