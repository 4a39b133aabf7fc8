/**
 * `npm run soak -- 30m [--seed N]`: `pawl dev` for that long, with its faults at their usual rate, and its memory watched. Ends
 * with 0 when it stayed up, all examples ended well, and the memory is flat.
 */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { parseDuration } from '../../src/base/time/duration.ts';
import { nodeMemory, type Sample, trendOf } from './memory.ts';

const MAIN = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
/** So many looks at the memory, however long the run. */
const LOOKS = 240;

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { seed: { type: 'string', default: '1' } },
});
const [length = '30m'] = positionals;
const lengthMs = parseDuration(length, { what: 'npm run soak', field: 'length', min: 10_000 });

const begun = performance.now();
const samples: Sample[] = [];
const program = spawn(process.execPath, [MAIN, 'dev', '--json', '--exit-after', length, '--seed', values.seed], {
  stdio: ['ignore', 'pipe', 'inherit'],
});
let summary = '';
program.stdout.on('data', (text) => {
  summary += String(text);
});
const watch = setInterval(look, lengthMs / LOOKS);
const [code, signal]: unknown[] = await once(program, 'close');
clearInterval(watch);

const ranMs = performance.now() - begun;
const { isFlat, early, late } = trendOf(samples);
console.log(summary.trim());
console.log(
  `soak: ran ${(ranMs / 1000).toFixed()} s of ${lengthMs / 1000} s, ended with ${typeof signal === 'string' ? signal : `code ${String(code)}`}`,
);
console.log(
  `soak: memory of its Node processes: ${megabytes(early)} in the second quarter, ${megabytes(late)} in the last: ` +
    (isFlat ? 'flat' : 'IT GROWS'),
);
process.exitCode = code === 0 && ranMs >= lengthMs && isFlat ? 0 : 1;

function look(): void {
  const atMs = performance.now() - begun;
  // Then the examples finish and check their work, each in a way of its own.
  if (atMs > lengthMs || program.pid === undefined) return;
  const table = execFileSync('ps', ['-eo', 'pid=,ppid=,rss=,comm='], { encoding: 'utf8' });
  samples.push({ atMs, bytes: nodeMemory(table, program.pid) });
}

function megabytes(bytes: number): string {
  return `${(bytes / 1024 ** 2).toFixed()} MB`;
}
