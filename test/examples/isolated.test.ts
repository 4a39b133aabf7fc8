import { execFile as execFileOf } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import type * as Cloud from '../../examples/cloud/provider.ts';
import type * as Dev from '../../examples/dev.ts';
import type { DevExample, Figures } from '../../examples/dev-example.ts';
import { aborted, until } from '../support/eventually.ts';
import { compiled } from './processes.ts';

const { runExamples } = await compiled<typeof Dev>('dev.js');
const { Provider } = await compiled<typeof Cloud>('cloud/provider.js');

const execFile = promisify(execFileOf);

class Example implements DevExample {
  readonly name: string;
  readonly calls: string[] = [];
  readonly #faults: Partial<Record<'start' | 'feed' | 'finish' | 'stop', () => void>>;

  constructor(name: string, faults: Partial<Record<'start' | 'feed' | 'finish' | 'stop', () => void>> = {}) {
    this.name = name;
    this.#faults = faults;
  }

  async start(): Promise<void> {
    this.calls.push('start');
    this.#faults.start?.();
  }

  async feed(signal: AbortSignal): Promise<void> {
    this.calls.push('feed');
    this.#faults.feed?.();
    await aborted(signal);
  }

  async finish(): Promise<Figures> {
    this.calls.push('finish');
    this.#faults.finish?.();
    return { ok: true, rows: 3 };
  }

  async stop(): Promise<void> {
    this.calls.push('stop');
    this.#faults.stop?.();
  }
}

function fail(what: string): () => void {
  return () => {
    throw new Error(what);
  };
}

/** Runs them until `isOver`, on no database: they ask for none. */
async function run(
  examples: readonly DevExample[],
  isOver: (lines: string[]) => boolean,
): Promise<{ summary: Figures; log: string }> {
  const stop = new AbortController();
  const lines: string[] = [];
  const running = runExamples(examples, { signal: stop.signal, log: (line) => lines.push(line) });
  await until('it is over', () => isOver(lines));
  stop.abort();
  return { summary: await running, log: lines.join('\n') };
}

test.each(['start', 'feed', 'finish', 'stop'] as const)(
  'an example that throws in %s is reported and not ok, and the others go on to their end',
  async (when) => {
    const [main, bad, other] = [
      new Example('main'),
      new Example('bad', { [when]: fail('out of paper') }),
      new Example('other'),
    ];
    const { summary, log } = await run(
      [main, bad, other],
      () => main.calls.includes('feed') && other.calls.includes('feed'),
    );
    expect(log).toContain('out of paper');
    expect(summary['other']).toEqual({ ok: true, rows: 3 });
    // What could not be stopped was checked before: it has figures, and the log has the rest.
    if (when === 'stop') return;
    expect(summary).toMatchObject({
      ok: false,
      rows: 3,
      bad: { ok: false, problems: [expect.stringContaining('out of paper')] },
    });
    for (const good of [main, other]) expect(good.calls).toEqual(['start', 'feed', 'finish', 'stop']);
    expect(bad.calls).toContain('stop');
  },
);

const STRAY = `
  import { runExamples } from ${JSON.stringify(new URL('../../dist-examples/dev.js', import.meta.url).href)};
  const stop = new AbortController();
  let told = 0;
  const stray = {
    name: 'stray',
    start: async () => {},
    feed: async () => {
      setImmediate(() => { throw new Error('thrown in a callback'); });
      void Promise.reject(new Error('rejected unseen'));
    },
    finish: async () => ({ ok: true }),
    stop: async () => {},
  };
  const log = () => { if (++told === 2) stop.abort(); };
  console.log(JSON.stringify(await runExamples([stray], { signal: stop.signal, log })));`;

test('an error that an example throws outside of any awaited call does not end the program, and is reported', async () => {
  // In a process of its own: the runner of the tests listens for such things, too.
  const { stdout } = await execFile(process.execPath, ['--input-type=module', '-e', STRAY]);
  const summary: unknown = JSON.parse(stdout);
  expect(summary).toMatchObject({ ok: false, stray: [expect.any(String), expect.any(String)] });
  expect(stdout).toContain('thrown in a callback');
  expect(stdout).toContain('rejected unseen');
});

test('examples that broke off do not end a run that was to go on', async () => {
  const bad = new Example('bad', { feed: fail('out of paper') });
  const stop = new AbortController();
  const lines: string[] = [];
  let isOver = false;
  const running = runExamples([bad], { signal: stop.signal, log: (line) => lines.push(line) }).finally(() => {
    isOver = true;
  });
  await until('it broke off', () => lines.length > 0);
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  expect(isOver).toBe(false);
  stop.abort();
  expect(await running).toMatchObject({ ok: false });
});

test('an instance that ended by itself just now is not killed again, nor is another process with its number', async () => {
  const provider = new Provider();
  try {
    const { pid } = await provider.create('token', new AbortController().signal);
    process.kill(pid, 'SIGKILL');
    await until('it is gone', () => provider.alive === 0);
    expect(provider.kill(pid)).toBe(false);
    expect(provider.kill(process.pid)).toBe(false);
    const other = await provider.create('another token', new AbortController().signal);
    expect(provider.kill(other.pid)).toBe(true);
  } finally {
    await provider.stop();
  }
});
