// Checks the table of ARCHITECTURE.md that names the files of each request: the files exist, their number is right, and a job passes at
// most 15. With --sizes it also fails on a file of src/ over 350 lines and on more than 14 files on one level.
// It does not check docs/, bench/ and scripts/. They are flat by design: each file is a page, a bench or a command, and is opened by its name.
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname } from 'node:path';

const LINES = 350;
const FILES = 14;
const JOB = 15;

const files = execFileSync(
  'git',
  ['ls-files', '--cached', '--others', '--exclude-standard', 'src', 'test', 'sql', 'dashboard/src'],
  {
    encoding: 'utf8',
  },
)
  .split('\n')
  .filter((file) => file !== '' && existsSync(file));

const sizes = [...tooLong(), ...tooMany()];
const problems = [...ways(), ...(process.argv.includes('--sizes') ? sizes : [])];
for (const problem of problems) console.error(problem);
if (problems.length > 0) process.exit(1);
console.log(
  `house: the ways are true; ${sizes.length} files or levels of ${files.length} are too large (--sizes names them)`,
);

function tooLong() {
  return files
    .filter((file) => /^src\/.*\.ts$/.test(file) && !file.endsWith('.gen.ts'))
    .map((file) => ({ file, lines: readFileSync(file, 'utf8').split('\n').length - 1 }))
    .filter(({ lines }) => lines > LINES)
    .map(({ file, lines }) => `${file} has ${lines} lines: split it by noun, so that each file is one idea`);
}

function tooMany() {
  const levels = new Map();
  for (const file of files) levels.set(dirname(file), [...(levels.get(dirname(file)) ?? []), file]);
  return [...levels]
    .filter(([, inside]) => inside.length > FILES)
    .map(([level, inside]) => `${level}/ has ${inside.length} files on one level: give some of them a room`);
}

/** Reads rows such as `| a job, 15 files | `queue/queue.ts`, … |`. Names are the ends of paths in the capability, base or engine. */
function ways() {
  const text = readFileSync('ARCHITECTURE.md', 'utf8');
  const [table = ''] = text.match(/^\| What goes[^]*?\n\n/m) ?? [];
  const rows = table
    .split('\n')
    .slice(2)
    .filter((row) => row !== '')
    .map((row) => row.split('|').map((cell) => cell.trim()));
  const first = rows[0]?.[2].match(/`[^`]+`/g)?.slice(0, 4) ?? [];
  if (rows.length === 0) return ['ARCHITECTURE.md has no table of the ways'];
  return rows.flatMap(([, what = '', named = '']) => {
    const names = [...(named.startsWith('the first four') ? first : []), ...(named.match(/`[^`]+`/g) ?? [])];
    const said = Number(what.match(/\d+/)?.[0]);
    const room = /job|transaction/.test(what) ? 'queue' : what.match(/lock|actor|capture/)?.[0];
    const count = names.length === said ? [] : [`ARCHITECTURE.md: "${what}" names ${names.length} files`];
    const most =
      what.startsWith('a job') && names.length > JOB
        ? [`ARCHITECTURE.md: a job goes through more than ${JOB} files`]
        : [];
    return [...count, ...most, ...names.flatMap((name) => unresolved(name.slice(1, -1), room))];
  });
}

function unresolved(name, room) {
  const found = files.filter(
    (file) => new RegExp(`^src/(?:${room}|base|engine)/`).test(file) && `/${file}`.endsWith(`/${name}`),
  );
  if (found.length === 1) return [];
  return [
    `ARCHITECTURE.md: "${name}" is ${found.length === 0 ? 'no file' : found.join(' or ')} of src/${room}, base or engine`,
  ];
}
