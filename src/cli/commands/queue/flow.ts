import type { Command } from 'commander';
import { isObject } from '../../../base/options/shape.ts';
import type { HandNode } from '../../../queue/index.ts';
import { EXIT } from '../../output/failure.ts';
import { addDynamoFlagsToAll } from '../../setup/dynamo-table.ts';
import { examples } from '../../setup/help.ts';
import { type Cli, run } from '../../setup/run.ts';
import { readJobs } from './json-jobs.ts';

/** `pawl flow add`. */
export function addFlow(program: Command): void {
  const flow = program.command('flow').description('add graphs of jobs');
  examples(flow, ['pawl flow add flow.json', 'pawl flow add - < flow.json']);
  const add = flow
    .command('add [file]')
    .description(
      'add a graph of jobs, all or none: a list of {name, queue, kind, payload, after: [names]}, in any order',
    )
    .option('--queue <queue>', 'of the nodes that name none');
  examples(add, ['pawl flow add flow.json -o json', 'pawl flow add flow.json --queue orders --dry-run']);
  add.action((file: string | undefined, { queue }: { queue?: string }, self: Command) =>
    run(self, (cli) => addAll(cli, file, queue), { writes: true, queue }),
  );
  addDynamoFlagsToAll(flow, 'the queues are in this table');
}

async function addAll(cli: Cli, file: string | undefined, queue: string | undefined): Promise<number> {
  const given = await readJobs<HandNode>(file, 'a flow');
  const nodes =
    queue === undefined
      ? given
      : given.map((node) => (isObject(node) ? { ...node, queue: node.queue ?? queue } : node));
  if (cli.globals.dryRun) {
    (await import('../../../queue/index.ts')).checkFlow(nodes);
    cli.talk.say(`would add ${nodes.length} jobs`);
    return EXIT.done;
  }
  const ids = await (await cli.admin()).flow(nodes);
  cli.out.rows(
    Object.entries(ids).map(([name, id]) => ({ name, id })),
    [
      { title: 'NODE', of: (row) => row.name },
      { title: 'JOB', of: (row) => row.id, align: 'right' },
    ],
    (row) => row.id,
  );
  return EXIT.done;
}
