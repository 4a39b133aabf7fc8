import { expect, onTestFinished, test } from 'vitest';
import { postgres } from '../../../src/engine/postgres/index.ts';
import { createQueue } from '../../../src/queue/index.ts';
import { freshDatabase } from '../../support/database.ts';
import { warmPawl } from '../warm-pawl.ts';

test('-V prints the version', async () => {
  const { code, stdout } = await warmPawl(['-V']);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
});

test.for([['lock', 'run'], ['worker']])('help shows defaults as a person writes them: %s', async (words) => {
  const { stdout } = await warmPawl([...words, '--help']);
  expect(stdout).toMatch(/\(default:\s+30s\)/);
  expect(stdout).not.toMatch(/default: (null|\d{4,})/);
});

test('migrate says what it did in a line for each capability', async () => {
  const { url } = await freshDatabase({ migrated: false });
  const { code, stdout } = await warmPawl(['migrate'], { url });
  expect(code).toBe(0);
  const [head, ...lines] = stdout.trim().split('\n');
  expect(head).toMatch(/^LINE +FILES +FUNCTIONS/);
  expect(lines.map((line) => line.split(/ +/)[0])).toEqual(['actor', 'capture', 'files', 'http', 'lock', 'queue']);
});

test.for([
  'queue stats %',
  'queue pause %',
  'queue resume % --dry-run',
  'job add % send {}',
  'job add % send {} --dry-run',
  'job list --queue %',
  'job search --queue % ada',
  'schedule list %',
  'schedule show % nightly',
  'schedule runs % nightly',
  'schedule pause % nightly',
  'schedule run % nightly',
])('pawl %s names the queue that was meant, or those that there are', async (line) => {
  const { url } = await freshDatabase();
  const engine = postgres(url);
  onTestFinished(() => engine.stop());
  await createQueue(engine, 'mail', { kinds: { send: {} } }).register();
  const near = await warmPawl(line.replace('%', 'mial').split(' '), { url });
  expect(near.code).toBe(4);
  expect(near.stderr).toMatch(/there is no queue "mial"; did you mean "mail"\?\nnext: +pawl \w+ \w+ (--queue )?mail …/);
  const far = await warmPawl(line.replace('%', 'something-else').split(' '), { url });
  expect(far.stderr).toMatch(/there is no queue "something-else"; there are mail/);
});
