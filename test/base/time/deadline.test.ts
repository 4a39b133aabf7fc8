import { expect, test } from 'vitest';
import { deadline } from '../../../src/base/time/deadline.ts';

test('is called when its time has passed, and not before', async () => {
  const begin = performance.now();
  await new Promise<void>((resolve) => {
    deadline(100, resolve);
    setTimeout(() => {}, 1_000);
  });
  expect(performance.now() - begin).toBeGreaterThanOrEqual(99);
});

test('is not called once it was cancelled, even in its last moments', async () => {
  let calls = 0;
  const cancel = deadline(10, () => void (calls += 1));
  // Within what is given to input that was not read yet.
  setTimeout(cancel, 40);
  await new Promise((resolve) => setTimeout(resolve, 300));
  expect(calls).toBe(0);
});

test('what came in while the event loop was blocked counts as come in time', async () => {
  let outcome = '';
  const cancel = deadline(20, () => void (outcome = 'too late'));
  const answered = new Promise<void>((resolve) => {
    // Due as soon as the loop gets to read input again, as an answer in the socket's buffer is.
    setTimeout(() => setImmediate(resolve), 30);
  }).then(() => {
    cancel();
    outcome = 'answered';
  });
  const begin = performance.now();
  while (performance.now() - begin < 200);
  await answered;
  expect(outcome).toBe('answered');
});
