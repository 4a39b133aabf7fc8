import type { Command } from 'commander';
import { NotFound } from '../../base/errors.ts';
import { suggest } from '../../base/options/options.ts';
import type { AnyQueueAdmin } from '../../queue/index.ts';
import { EXIT, Failure } from '../output/failure.ts';

/**
 * The error with which a command ends. If the queue that the command line names does not exist, the error names the existing
 * queues. Otherwise it is the error of the command.
 */
export async function explainUnknownQueue(
  error: unknown,
  queue: string,
  command: Command,
  admin: () => Promise<AnyQueueAdmin>,
): Promise<unknown> {
  if (!(error instanceof NotFound)) return error;
  const names = (await (await admin()).list()).map(({ name }) => name);
  if (names.includes(queue)) return error;
  const near = suggest(queue, names);
  const known = names.length === 0 ? 'no queue is known yet' : `there are ${names.join(', ')}`;
  return new Failure(`there is no queue "${queue}"; ${near === undefined ? known : `did you mean "${near}"?`}`, {
    exit: EXIT.notFound,
    next: near === undefined ? 'pawl queue list' : correctedCommand(command, near),
  });
}

/** `pawl job add mail …`, or `pawl job list --queue mail …`. */
function correctedCommand(command: Command, queue: string): string {
  const path = [];
  for (let at: Command | null = command; at !== null; at = at.parent) path.unshift(at.name());
  const isOption = command.registeredArguments[0]?.name() !== 'queue';
  return `${path.join(' ')} ${isOption ? '--queue ' : ''}${queue} …`;
}
