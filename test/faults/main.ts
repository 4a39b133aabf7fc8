// npm run test:faults -- --part queue --seeds 1..60 [--jobs 2] [--plant NAME] [--short]
import { parseArgs } from 'node:util';
import { buildChildren } from '../support/children/children.ts';
import { makeCluster } from '../support/servers/embedded.ts';
import { tellFault } from './fault.ts';
import { Ground } from './ground.ts';
import type { Report, Runner } from './part.ts';
import { PARTS } from './parts.ts';

const { values } = parseArgs({
  options: {
    part: { type: 'string', default: 'queue' },
    seeds: { type: 'string', default: '1..6' },
    jobs: { type: 'string', default: '2' },
    plant: { type: 'string' },
    /** The schedule that shows a plant, but without the plant. */
    scene: { type: 'string' },
    /** Short schedules, as in `npm test`. */
    short: { type: 'boolean', default: false },
    /** Only prints the plans. */
    plan: { type: 'boolean', default: false },
  },
});

function readSeeds(text: string): number[] {
  const [, first, last = first] = /^(\d+)(?:\.\.(\d+))?$/.exec(text) ?? [];
  if (first === undefined) throw new Error(`--seeds takes 7 or 1..60, not "${text}"`);
  return Array.from({ length: Number(last) - Number(first) + 1 }, (_, index) => Number(first) + index);
}

function readPart(name: string): Runner {
  const part = PARTS.find((each) => each.name === name);
  if (part === undefined) throw new Error(`--part takes ${PARTS.map((each) => each.name).join(', ')}, not "${name}"`);
  return part;
}

const part: Runner = readPart(values.part);
const seeds: number[] = readSeeds(values.seeds);
const reports: Report[] = [];

async function run(ground: Ground): Promise<void> {
  const left = [...seeds];
  const one = async (): Promise<void> => {
    for (let seed = left.shift(); seed !== undefined; seed = left.shift()) {
      const report = await part.run(seed, ground, { plant: values.plant, scene: values.scene, isShort: values.short });
      reports.push(report);
      print(report);
    }
  };
  await Promise.all(Array.from({ length: Number(values.jobs) }, one));
}

function print({ plan, operations, faults, violations, ms }: Report): void {
  const done = tally(faults) || 'no faults';
  console.log(`seed ${plan.seed}: ${plan.title}; ${operations} operations; ${done}; ${(ms / 1000).toFixed(1)} s`);
  for (const { rule, about, story } of violations.slice(0, 5)) {
    console.log(`  VIOLATION ${rule}: ${about}\n${story.map((line) => `    ${line}`).join('\n')}`);
  }
  if (violations.length === 0) return;
  const more = violations.length > 5 ? `${violations.length} violations; ` : '';
  const withPlant = values.plant === undefined ? '' : ` --plant '${values.plant}'`;
  const length = values.short ? ' --short' : '';
  console.log(`  ${more}faults: ${plan.faults.map(tellFault).join(', ')}`);
  console.log(`  again: npm run test:faults -- --part ${part.name} --seeds ${plan.seed}${length}${withPlant}`);
}

function tally(counts: Readonly<Record<string, number>>): string {
  const names = Object.keys(counts).toSorted();
  return names.map((name) => `${counts[name]} ${name}`).join(', ');
}

function printTotals(): void {
  const faults: Record<string, number> = {};
  for (const report of reports) {
    for (const [name, n] of Object.entries(report.faults)) faults[name] = (faults[name] ?? 0) + n;
  }
  const sum = (of: (report: Report) => number): number => reports.reduce((total, report) => total + of(report), 0);
  const rules: Record<string, number> = {};
  for (const { rule } of reports.flatMap((report) => report.violations)) rules[rule] = (rules[rule] ?? 0) + 1;
  console.log(
    `part ${part.name}: ${reports.length} schedules, ${sum((r) => r.operations)} operations, ` +
      `${Object.values(faults).reduce((a, b) => a + b, 0)} faults (${tally(faults)}), ` +
      `${sum((r) => r.violations.length)} violations${Object.keys(rules).length > 0 ? ` (${tally(rules)})` : ''}`,
  );
  const missing = seeds.filter((seed) => !reports.some(({ plan }) => plan.seed === seed));
  if (missing.length > 0) console.log(`not played to an end: seeds ${missing.join(', ')}`);
}

if (values.plan) {
  for (const seed of seeds) console.log(JSON.stringify(part.plan(seed), null, 2));
} else {
  // Whenever this process ends, it prints the totals so far.
  process.on('exit', () => {
    printTotals();
    const isGood = reports.length === seeds.length && reports.every(({ violations }) => violations.length === 0);
    if (!isGood) process.exitCode = 1;
  });
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => process.exit(1));
  const [children, cluster] = await Promise.all([buildChildren(), makeCluster()]);
  try {
    await using ground = await Ground.open({ children: children.folder, cluster: cluster.dataDir });
    await run(ground);
  } finally {
    await Promise.all([children.remove(), cluster.remove()]);
  }
  // Explicitly: with open handles, Node has been seen to check for ever whether they are closed.
  process.exit();
}
