import { type REPLServer, start } from 'node:repl';
import type { Command } from 'commander';
import { EXIT } from '../output/failure.ts';
import { openActors } from '../setup/actor-config.ts';
import { examples } from '../setup/help.ts';
import { type Cli, run } from '../setup/run.ts';

/** `pawl repl --config FILE`: a Node REPL with the actors of the config file. */
export function addRepl(program: Command): void {
  const command = program
    .command('repl')
    .description('a REPL with the actors of a config file: await actors.work("42"), await actors.explain("42")…');
  examples(command, ['pawl repl', 'pawl repl --config pawl.config.mjs']);
  command.action((_options: object, self: Command) => run(self, openRepl, { writes: true, endsBySignal: true }));
}

async function openRepl(cli: Cli): Promise<number> {
  const actors = await openActors(cli);
  await actors.register();
  if (cli.globals.dryRun) {
    cli.talk.say('would open a REPL with the actors of the config file');
    return EXIT.done;
  }
  cli.talk.say(
    'actors is at hand: await actors.list(), await actors.work("42"), await actors.explain("42"); .exit ends',
  );
  const repl = start({ prompt: process.stdin.isTTY === true ? 'pawl> ' : '', terminal: process.stdin.isTTY === true });
  for (const name of [
    'get',
    'list',
    'work',
    'explain',
    'history',
    'incr',
    'pause',
    'resume',
    'destroy',
    'diagram',
  ] as const) {
    Object.defineProperty(repl.context, name, { value: actors[name].bind(actors), enumerable: true, writable: true });
  }
  Object.defineProperty(repl.context, 'actors', { value: actors, enumerable: true, writable: true });
  const evaluated = inOrder(repl);
  await new Promise<void>((resolve) => {
    repl.once('exit', resolve);
    cli.signal.addEventListener('abort', () => repl.close(), { once: true });
    if (cli.signal.aborted) repl.close();
  });
  await evaluated();
  return EXIT.done;
}

type Evaluate = REPLServer['eval'];

/** All lines from a pipe arrive at once, so each waits for the one before. @returns a function that waits for the last line */
function inOrder(repl: REPLServer): () => Promise<void> {
  const evaluate: Evaluate = repl.eval;
  let last = Promise.resolve();
  const next: Evaluate = function (this: REPLServer, code, context, file, callback) {
    const run = (): Promise<void> =>
      new Promise((resolve) => {
        evaluate.call(repl, code, context, file, (error, result) => {
          callback(error, result);
          resolve();
        });
      });
    last = last.then(run);
  };
  Object.assign(repl, { eval: next });
  return () => last;
}
