import { type CapturedRow, type CaptureOptions, captureRows, settle } from 'pawl/lock';
import { type PostgresEngine, statement } from 'pawl/postgres';

/** A team that is billed once a night, for its seats. */
export interface Team {
  readonly id: number;
  readonly status: 'due' | 'billing' | 'billed';
  readonly seats: number;
  readonly token: string | null;
  readonly attempts_left: number;
  readonly leased_until: Date | null;
}

/** What one process reports about its part of the run. */
export type Progress = { readonly captured: number } | { readonly billed: number } | { readonly stale: number };

const PRICE_PER_SEAT = 12;

const NEXT: CaptureOptions<Team> = {
  status: { from: 'due', to: 'billing' },
  limit: 5,
  token: 'token',
  retries: 'attempts_left',
  // So short that the teams of a killed process are taken over while you watch.
  lease: { column: 'leased_until', for: '1s' },
};

/**
 * Makes the tables anew, with every team due. Nothing in nightly_invoice keeps a team from being billed twice, so that
 * it would be seen.
 */
export async function prepareBilling(engine: PostgresEngine, teams: number): Promise<void> {
  await engine.session(async (session) => {
    await session.run(`
      drop table if exists nightly_invoice, nightly_team, nightly_report;
      create table nightly_team (
        id int primary key, seats int not null, status text not null default 'due',
        token bigint, attempts_left int not null default 10, leased_until timestamptz
      );
      create table nightly_invoice (id int generated always as identity primary key, team int not null references nightly_team, amount int not null);
      create table nightly_report (id int generated always as identity primary key, made_at timestamptz not null default clock_timestamp())`);
  });
  await engine.query(
    statement(
      'nightly.teams',
      'insert into nightly_team (id, seats) select n, 1 + n % 9 from generate_series(1, $1::int) n',
    ),
    [teams],
  );
}

/** One process's part of the billing run: claims teams, a few at a time, until every team is billed by somebody. */
export async function runBilling(engine: PostgresEngine, tell: (progress: Progress) => void): Promise<void> {
  while (await isTeamOpen(engine)) {
    const teams = await captureRows<Team>(engine, 'nightly_team', NEXT);
    if (teams.length === 0) {
      // What is left is claimed by others: wait until they are done, or their leases are over.
      await engine.query(statement('nightly.pause', 'select pg_sleep(0.1)'));
      continue;
    }
    tell({ captured: teams.length });
    for (const team of teams) {
      await sendToAccounting();
      tell((await bill(engine, team)) ? { billed: team.row.id } : { stale: team.row.id });
    }
  }
}

/** Writes the invoice together with the team's new status: both, or none when the team is no longer ours. */
function bill(engine: PostgresEngine, team: CapturedRow<Team>): Promise<boolean> {
  return engine.transaction(async (tx) => {
    const { settled } = await settle(tx, 'nightly_team', [team], 'billed');
    if (settled.length === 0) return false;
    const { id, seats } = team.row;
    await tx.query(
      statement('nightly.invoice', 'insert into nightly_invoice (team, amount) values ($1::int, $2::int)'),
      [id, seats * PRICE_PER_SEAT],
    );
    return true;
  });
}

/** The slow part of the work, during which a process may be killed. */
function sendToAccounting(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 20));
}

async function isTeamOpen(engine: PostgresEngine): Promise<boolean> {
  const open = `select from nightly_team
    where status <> 'billed' and (attempts_left > 0 or leased_until > clock_timestamp()) limit 1`;
  return (await engine.query(statement('nightly.open', open))).length === 1;
}
