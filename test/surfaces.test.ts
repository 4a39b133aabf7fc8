import { readFileSync } from 'node:fs';
import { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { Actors } from '../src/actor/actors.ts';
import { ActorAdmin } from '../src/actor/index.ts';
import { addActor } from '../src/cli/commands/actor.ts';
import { addJob } from '../src/cli/commands/job.ts';
import { addPage } from '../src/cli/commands/page.ts';
import { addBatch } from '../src/cli/commands/queue/batch.ts';
import { addFlow } from '../src/cli/commands/queue/flow.ts';
import { addTopic } from '../src/cli/commands/queue/topic.ts';
import { addQueue } from '../src/cli/commands/queue.ts';
import { addSchedule } from '../src/cli/commands/schedule.ts';
import { addWorker } from '../src/cli/worker/worker.ts';
import { ROUTES } from '../src/http/app.ts';
import { Batch, Queue, QueueAdmin, Topic } from '../src/queue/index.ts';

const TEXT = readFileSync(new URL('../docs/surfaces.md', import.meta.url), 'utf8');

/** The words in `code` of a column of a table. */
function words(section: string, column: number): string[] {
  const [, body = ''] = TEXT.split(`## ${section}\n`);
  const [table = ''] = body.split('\n## ');
  const cells = table.split('\n').flatMap((line) => (line.startsWith('| `') ? [line.split('|')[column] ?? ''] : []));
  return cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, word = '']) => word));
}

/** What a user of these classes can call. */
function methods(...classes: readonly (abstract new (...args: never[]) => object)[]): string[] {
  const names = new Set<string>();
  for (const one of classes) {
    for (
      let at: object | null = one.prototype;
      at !== null && at !== Object.prototype;
      at = Object.getPrototypeOf(at)
    ) {
      for (const [name, { value }] of Object.entries(Object.getOwnPropertyDescriptors(at))) {
        if (typeof value === 'function' && name !== 'constructor' && name !== 'toJSON') names.add(name);
      }
    }
  }
  return [...names].toSorted();
}

function commands(): string[] {
  const program = new Command('pawl');
  for (const add of [addWorker, addQueue, addTopic, addFlow, addBatch, addJob, addSchedule, addActor, addPage])
    add(program);
  const all = (command: Command, path: string): string[] => {
    const below = command.commands.flatMap((one) => all(one, `${path} ${one.name()}`));
    return [...below, ...(command.commands.length === 0 || command.name() === 'worker' ? [path] : [])];
  };
  return all(program, 'pawl').toSorted();
}

const TAGS: readonly string[] = ['jobs', 'queues', 'workers', 'schedules', 'actors', 'pages'];
const OF_QUEUES = methods(Queue, QueueAdmin, Batch, Topic);
/** Protected, which a prototype does not tell. */
const PROTECTED: readonly string[] = ['fillIndex', 'typeNamed'];
const OF_ACTORS = methods(Actors, ActorAdmin).filter((name) => !PROTECTED.includes(name));

describe('what programs, requests, commands and pages do', () => {
  test('every method of queues and actors stands in the table of surfaces', () => {
    expect(words('Queues', 1).toSorted()).toEqual(OF_QUEUES);
    expect(words('Actors', 1).toSorted()).toEqual(OF_ACTORS);
  });

  test('so does every route about them, and there is no other', () => {
    const about = ROUTES.filter(({ tag, path }) => TAGS.includes(tag) && !/(series|charts|heat)$/.test(path));
    const ids = new Set(about.map(({ id }) => id));
    const named = [...words('Queues', 2), ...words('Actors', 2)].filter((word) => /^[a-z]+[A-Z]|^publish$/.test(word));
    expect(named.filter((word) => !ids.has(word))).toEqual([]);
    expect([...ids].filter((id) => !named.includes(id))).toEqual([]);
  });

  test('and every command', () => {
    const named = [...words('Queues', 3), ...words('Actors', 3)].map((command) => command.replace(' --once', ''));
    expect([...new Set(named)].toSorted()).toEqual(commands());
  });
});
