import { createActorAdmin } from '../../actor/index.ts';
import type { DynamoEngine } from '../../engine/dynamodb/index.ts';
import { createQueueAdmin, type QueueStats } from '../../queue/index.ts';
import { type DynamoFlags, flagsOf, migrateCommand } from '../setup/dynamo-table.ts';
import { checkActors } from './actor-checks.ts';
import { type Finding, fail, ok, warn } from './finding.ts';

/** If the clocks differ by more, AWS may soon refuse signed requests: a signature is valid for five minutes. */
const MOST_APART_MS = 60_000;

/** The checks of `pawl doctor` for a table of DynamoDB. */
export async function examineTable(engine: DynamoEngine, flags: DynamoFlags): Promise<Finding[]> {
  if (!(await engine.isMigrated()))
    return [fail('schema', `there is no table "${engine.table}"`, migrateCommand(flags))];
  const findings = [ok('schema', `the table "${engine.table}" exists, with its time to live`)];
  const apartMs = Math.round(Date.now() - (await engine.serviceTime({ timeoutMs: 10_000 })));
  const clocks = `this machine's clock and that of the service are ${Math.abs(apartMs)} ms apart`;
  findings.push(
    Math.abs(apartMs) < MOST_APART_MS
      ? ok('clock', clocks)
      : warn(
          'clock',
          clocks,
          'set the clock of this machine: nothing here goes by it, but requests are signed with its time',
        ),
  );
  const admin = createQueueAdmin(engine);
  const queues = await admin.list();
  for (const { name } of queues) findings.push(ofQueue(name, await admin.stats(name), flags));
  if (queues.length === 0) findings.push(ok('queues', 'no program has declared a queue yet'));
  return [...findings, ...checkActors(await createActorAdmin(engine).health(), flagsOf(flags))];
}

function ofQueue(name: string, stats: QueueStats, flags: DynamoFlags): Finding {
  const { ready, delayed, inProgress, workers, slots, paused } = stats;
  const check = `queue ${name}`;
  const counts = `${ready} ready, ${delayed} delayed, ${inProgress} in progress; ${workers} workers with ${slots} slots`;
  if (paused) return warn(check, `it is paused: ${counts}`, ['pawl queue resume', name, ...flagsOf(flags)].join(' '));
  if (workers === 0 && ready > 0) return warn(check, `it has no running worker: ${counts}`, 'start one: pawl worker');
  return ok(check, counts);
}
