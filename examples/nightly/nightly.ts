import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { postgres, statement } from 'pawl/postgres';
import { type Progress, prepareBilling } from './billing.ts';

/** How the night goes. */
export interface NightlyOptions {
  /** How many processes start at once. Default 4. */
  readonly processes?: number;
  /** Kill one of them (SIGKILL) while it has teams in hand. Default true. */
  readonly kill?: boolean;
  /** How many teams there are to bill. Default 60. */
  readonly teams?: number;
  /** Is told what happens. */
  readonly log?: (line: string) => void;
}

/** Its outcome. */
export interface NightlyResult {
  /** How often the daily report was made. */
  readonly runs: number;
  /** Teams with more than one invoice. */
  readonly billedTwice: number;
  /** Teams with an invoice. */
  readonly billed: number;
  /** Processes that were killed. */
  readonly killed: number;
}

/**
 * A night: several processes all try to make the daily report and to bill every team, and one of them is killed half-way.
 * Makes the tables nightly_… anew in the database, which must have been migrated.
 * @throws Error  when a process that was not killed fails
 */
export async function runNightly(engineUrl: string, options: NightlyOptions = {}): Promise<NightlyResult> {
  const { processes = 4, kill = true, teams = 60, log = () => {} } = options;
  const engine = postgres(engineUrl, { max: 2 });
  try {
    await prepareBilling(engine, teams);
    // However often it is run in a day, each time is a night of its own.
    const night = new Date().toISOString();
    const victim = kill ? new Victim(log) : undefined;
    const ends = Array.from({ length: processes }, (_, index) =>
      runProcess({ PAWL_URL: engineUrl, NIGHT: night }, `process ${index + 1}`, log, victim),
    );
    // All must have ended before the engine does, and before anybody removes the database under them.
    const failed = (await Promise.allSettled(ends)).find((end) => end.status === 'rejected');
    if (failed !== undefined) throw failed.reason;
    const [counts] = await engine.query<Omit<NightlyResult, 'killed'>>(COUNTS);
    if (counts === undefined) throw new Error('the counts of the night are missing');
    return { ...counts, killed: victim?.isDead === true ? 1 : 0 };
  } finally {
    await engine.stop();
  }
}

const COUNTS = statement(
  'nightly.counts',
  `select (select count(*)::int from nightly_report) as runs,
    count(*) filter (where invoices > 1)::int as "billedTwice",
    count(*)::int as billed
  from (select count(*) as invoices from nightly_invoice group by team) t`,
);

/** The first process that has billed a team and has others in hand. */
class Victim {
  readonly #log: (line: string) => void;
  isDead: boolean = false;

  constructor(log: (line: string) => void) {
    this.#log = log;
  }

  /** Kills it, if no process was killed yet. */
  choose(child: ChildProcess, name: string): boolean {
    if (this.isDead) return false;
    this.isDead = child.kill('SIGKILL');
    this.#log(`${name} is killed`);
    return this.isDead;
  }
}

async function runProcess(
  env: Readonly<Record<string, string>>,
  name: string,
  log: (line: string) => void,
  victim: Victim | undefined,
): Promise<void> {
  const child = start(env);
  let inHand = 0;
  let isVictim = false;
  child.on('message', (progress: Progress) => {
    if ('captured' in progress) {
      inHand = progress.captured;
      log(`${name} claimed ${inHand} teams`);
      return;
    }
    inHand -= 1;
    log(
      'billed' in progress
        ? `${name} billed team ${progress.billed}`
        : `${name} was too late for team ${progress.stale}`,
    );
    if ('billed' in progress && inHand > 0) isVictim = victim?.choose(child, name) === true || isVictim;
  });
  const [code] = await once(child, 'exit');
  if (code !== 0 && !isVictim) throw new Error(`${name} of the nightly example failed with exit code ${code}`);
}

/** Node 20 does not read types: from its source the process needs tsx, compiled it needs nothing. */
function start(env: Readonly<Record<string, string>>): ChildProcess {
  const isSource = import.meta.url.endsWith('.ts');
  const script = fileURLToPath(new URL(`process.${isSource ? 'ts' : 'js'}`, import.meta.url));
  return fork(script, {
    env: { ...process.env, ...env },
    execArgv: isSource ? ['--import', import.meta.resolve('tsx')] : [],
  });
}
