import { setTimeout as sleep } from 'node:timers/promises';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { dumpInto } from '../../capture/copy/dump.ts';
import { holdBackWal, type WalHold } from '../../support/children/crash.ts';
import { type Standby, startStandby } from '../../support/servers/standby.ts';
import { SETTINGS } from '../ground.ts';
import type { Stage } from '../stage.ts';
import { type declare, PROJECTED } from './declaration.ts';
import type { CapturePlan } from './plan.ts';
import { AUDIT, COLUMNS, OWN_TABLES, SCHEMA, TABLES } from './schema.ts';

type Shop = ReturnType<typeof declare>;

/** The fate of the captured server. */
export interface Turning extends AsyncDisposable {
  /** Called while all processes run. */
  begin(): Promise<void>;
  /** Called when all processes are dead. @returns the URL of the database from now on */
  end(): Promise<string>;
  /** The steps of an operator there: before the processes start, and while they run. */
  open(shop: Shop): Promise<void>;
  settle(shop: Shop): Promise<void>;
}

const nothing = async (): Promise<void> => {};
const NOTHING = { begin: nothing, open: nothing, settle: nothing, [Symbol.asyncDispose]: nothing };

export async function prepareTurn(plan: CapturePlan, stage: Stage): Promise<Turning> {
  switch (plan.turn) {
    case 'none':
      return { ...NOTHING, end: async () => stage.url };
    case 'crash':
      return crash(plan, stage);
    case 'failover':
      return failover(plan, stage, await startStandby(stage.server, SETTINGS));
    case 'dump':
      return dump(plan, stage);
  }
}

/** From a moment on, commits are not flushed; then the server dies. */
function crash({ turnAt }: CapturePlan, stage: Stage): Turning {
  let unflushed: WalHold | undefined;
  return {
    ...NOTHING,
    begin: async () => {
      await sleep(turnAt);
      await set(stage, 'off');
      unflushed = await holdBackWal(stage.server.url);
    },
    end: async () => {
      await unflushed?.crash();
      await set(stage, 'on');
      return stage.url;
    },
  };
}

async function set(stage: Stage, mode: 'on' | 'off'): Promise<void> {
  await stage.eye.query(`alter system set synchronous_commit = ${mode}`);
  await stage.eye.query('select pg_reload_conf()');
}

/** From a moment on, the standby receives nothing; then it is promoted. */
function failover({ turnAt }: CapturePlan, stage: Stage, standby: Standby): Turning {
  return {
    ...NOTHING,
    begin: async () => {
      await sleep(turnAt);
      await standby.cut();
    },
    end: async () => {
      await stage.server.stop();
      await standby.promote();
      const url = new URL(stage.url);
      url.port = String(standby.server.port);
      return url.href;
    },
    [Symbol.asyncDispose]: () => standby.server.stop(),
  };
}

/** A dump is made, and the work continues for a while. Then only the dump is left, on a younger server. */
async function dump({ turnAt }: CapturePlan, stage: Stage): Promise<Turning> {
  const { url } = await stage.another({ isStranger: true });
  const quiet = new URL(url);
  quiet.searchParams.set('options', '-c session_replication_role=replica');
  return {
    ...NOTHING,
    begin: async () => {
      await sleep(turnAt);
      await using from = postgres(stage.url, { max: 2 });
      await using into = postgres(quiet.href, { max: 2 });
      await into.session((session) => session.run(`${SCHEMA}${PROJECTIONS}`));
      await dumpInto(
        from,
        into,
        [...TABLES, ...OWN_TABLES, ...PROJECTED],
        ['faults_audit_n_seq', 'faults_journal_n_seq'],
      );
      await into.session((session) => session.run(AUDIT));
    },
    end: async () => url,
    // A real dump has the triggers, too; here apply() creates them.
    open: async ({ orders, changes }) => {
      await orders.apply();
      await changes.apply();
    },
    settle: async ({ copy, follower }) => {
      await sleep(300);
      await copy.rebase();
      await follower.rebase();
    },
  };
}

const PROJECTIONS = PROJECTED.map((name) => {
  const columns = Object.entries(COLUMNS).map(([column, type]) => `${column} ${type}`);
  return `create table ${name} (id int primary key, ${columns.join(', ')});`;
}).join('\n');
