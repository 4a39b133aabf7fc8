import type { TransactWriteItem } from '@aws-sdk/client-dynamodb';
import type { Unit } from 'pawl/queue';
import { json, keyOf, type SheetTable } from './table.ts';

const RECENT_MS = 10_000;

/** Which runs there were of which jobs: proof that none was done twice. It is there for this demonstration; you do not need it. */
export class RunLog {
  readonly #table: SheetTable;

  constructor(table: SheetTable) {
    this.#table = table;
  }

  /** Notes that a run begins: at once, so that it is recorded even if the process is killed. */
  async begin(unit: Unit): Promise<void> {
    await this.#table.put(unit.key ?? '', skOf(unit), {
      process: { N: String(process.pid) },
      startedAt: { N: String(Date.now()) },
    });
  }

  /** A part of the transaction that makes its file the current one: notes which jobs that did. */
  applied(unit: Unit, jobs: readonly string[]): TransactWriteItem {
    return {
      Update: {
        TableName: this.#table.name,
        Key: keyOf(unit.key ?? '', skOf(unit)),
        UpdateExpression: 'set applied = :jobs',
        ExpressionAttributeValues: { ':jobs': json(jobs) },
      },
    };
  }

  async countDoubles(): Promise<number> {
    const times = new Map<string, number>();
    for await (const { applied } of this.#table.all('run')) {
      const jobs: string[] = JSON.parse(applied?.S ?? '[]');
      for (const job of jobs) times.set(job, (times.get(job) ?? 0) + 1);
    }
    return [...times.values()].filter((n) => n > 1).length;
  }

  async interruptedBy(pid: number): Promise<string[]> {
    const ids = new Set<string>();
    for await (const { pk, process: by, startedAt, applied } of this.#table.all('run')) {
      const isRecent = Number(startedAt?.N ?? 0) > Date.now() - RECENT_MS;
      if (Number(by?.N) === pid && isRecent && applied === undefined) ids.add(pk?.S ?? '');
    }
    return [...ids];
  }
}

function skOf({ token, jobs }: Unit): string {
  return `run#${token}#${jobs[0]?.id}`;
}
