import type { ActorAdmin } from '../../../actor/index.ts';
import { EXIT, exitCodeOf, messageOf } from '../../output/failure.ts';
import { nextStep, openAdmin } from '../../setup/actor-config.ts';
import type { Cli } from '../../setup/run.ts';

/**
 * Changes the actors one after another; a refusal does not stop the others. Prints those that were changed, also if the database
 * is away before the last one. @returns the exit code of the first refusal
 */
export async function each(
  cli: Cli,
  names: readonly string[],
  done: string,
  change: (admin: ActorAdmin, name: string) => Promise<void>,
): Promise<number> {
  const admin = await openAdmin(cli);
  const rows: { id: string; done: string }[] = [];
  const fields = [
    { title: 'ID', of: (row: { id: string }) => row.id },
    { title: 'DONE', of: (row: { done: string }) => row.done },
  ];
  const print = (): void => cli.out.rows(rows, fields, (row) => row.id);
  let code: number = EXIT.done;
  for (const id of names) {
    cli.signal.throwIfAborted();
    try {
      if (!cli.globals.dryRun) await change(admin, id);
      rows.push({ id, done: cli.globals.dryRun ? `would be ${done}` : done });
    } catch (error) {
      if (names.length === 1) throw error;
      if (exitCodeOf(error) === EXIT.unreachable) {
        if (rows.length > 0) print();
        throw error;
      }
      cli.talk.fail(messageOf(error), nextStep(error));
      if (code === EXIT.done) code = exitCodeOf(error);
    }
  }
  print();
  return code;
}
