import type { Command } from 'commander';
import type { PublishedJob, TopicRecord } from '../../../queue/index.ts';
import { EXIT } from '../../output/failure.ts';
import type { Field } from '../../output/output.ts';
import { examples } from '../../setup/help.ts';
import { type Cli, run } from '../../setup/run.ts';
import { readPayload } from '../job-add.ts';

/** `pawl topic list|publish`. */
export function addTopic(program: Command): void {
  const topic = program.command('topic').description('show topics, and publish to their queues');
  examples(topic, ['pawl topic list', `pawl topic publish orders '{"id":42}'`]);
  const list = topic.command('list').description('topics, and the queues that are subscribed to them');
  examples(list, ['pawl topic list', 'pawl topic list -o json']);
  list.action((_options: object, self: Command) => run(self, listTopics));
  const publish = topic
    .command('publish <topic> [payload]')
    .description('add a job to each subscribed queue; the payload is JSON, "-" reads it from stdin')
    .option('--key <key>', 'jobs of one key run one after another')
    .option('--tag <tag...>', 'words to find them by')
    .option('--file <file>', 'read the payload from a file');
  examples(publish, [`pawl topic publish orders '{"id":42}' --key 42`, 'pawl topic publish orders --file order.json']);
  publish.action((name: string, payload: string | undefined, flags: PublishFlags, self: Command) =>
    run(self, (cli) => publishOne(cli, name, payload, flags), { writes: true }),
  );
}

interface PublishFlags {
  readonly key?: string;
  readonly tag?: readonly string[];
  readonly file?: string;
}

const TOPICS: readonly Field<TopicRecord>[] = [
  { title: 'TOPIC', of: (row) => row.name },
  { title: 'QUEUES', of: (row) => row.subscriptions.map(({ queue, kind }) => `${queue} (${kind})`).join(', ') },
];

async function listTopics(cli: Cli): Promise<number> {
  const topics = await (await cli.admin()).topics();
  cli.out.rows(topics, TOPICS, (row) => row.name);
  if (topics.length === 0) cli.talk.say('there is no topic: a program subscribes its queues by topic.subscribe(…)');
  return EXIT.done;
}

const JOBS: readonly Field<PublishedJob>[] = [
  { title: 'ID', of: (row) => row.id },
  { title: 'QUEUE', of: (row) => row.queue },
  { title: 'KIND', of: (row) => row.kind },
  { title: 'DUPLICATE', of: (row) => (row.duplicate ? 'yes' : 'no') },
];

async function publishOne(
  cli: Cli,
  name: string,
  payload: string | undefined,
  { key, tag: tags, file }: PublishFlags,
): Promise<number> {
  const value = await readPayload(payload, file);
  const { createTopic } = await import('../../../queue/index.ts');
  const topic = createTopic(await cli.engine(), name);
  if (cli.globals.dryRun) {
    const there = await topic.subscriptions();
    cli.talk.say(`would add a job to ${there.length} queues: ${there.map(({ queue }) => queue).join(', ')}`);
    return EXIT.done;
  }
  const jobs = await topic.publish(value, { key, tags });
  cli.out.rows(jobs, JOBS, (row) => row.id);
  if (jobs.length === 0) cli.talk.say(`no queue is subscribed to topic "${name}"; nothing was added`);
  return EXIT.done;
}
