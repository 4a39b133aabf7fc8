import { describe, expect, test } from 'vitest';
import { TimedOut } from '../../src/base/errors.ts';
import { probe } from '../../src/base/probe.ts';

describe('probe', () => {
  test('a hit without a listener goes nowhere', async () => {
    probe.hit('a.silent', { id: 0 });
    expect(probe.listening).toBe(false);
    const next = probe.next('a.silent');
    probe.hit('a.silent', { id: 1 });
    expect(await next).toEqual({ id: 1 });
  });

  test('next waits for the hit that satisfies the predicate', async () => {
    const next = probe.next('b.claimed', ({ id }) => id === 2);
    probe.hit('b.claimed', { id: 1 });
    probe.hit('b.other', { id: 2 });
    probe.hit('b.claimed', { id: 2 });
    expect(await next).toEqual({ id: 2 });
  });

  test('a watch misses nothing between two waits and hands out each hit once', async () => {
    using watch = probe.watch('c.claimed');
    for (const id of [1, 2, 3]) probe.hit('c.claimed', { id });
    expect(await watch.next(({ id }) => id === 2)).toEqual({ id: 2 });
    expect(await watch.next()).toEqual({ id: 1 });
    expect(await watch.next()).toEqual({ id: 3 });
    const fourth = watch.next();
    probe.hit('c.claimed', { id: 4 });
    expect(await fourth).toEqual({ id: 4 });
    expect(watch.hits).toHaveLength(4);
  });

  test('two waits for the same place get two different hits', async () => {
    using watch = probe.watch('d.claimed');
    const both = Promise.all([watch.next(), watch.next()]);
    probe.hit('d.claimed');
    probe.hit('d.claimed', { id: 2 });
    expect(await both).toEqual([{}, { id: 2 }]);
  });

  test('a wait that is not answered says what was hit instead', async () => {
    using watch = probe.watch('e.claimed');
    probe.hit('e.claimed', { id: 7n, key: 'k' });
    const wait = watch.next(({ id }) => id === 8n, { timeoutMs: 5 });
    await expect(wait).rejects.toThrow(TimedOut);
    await expect(wait).rejects.toThrow('no awaited hit of probe "e.claimed" within 5 ms; hit instead: id 7n, key "k"');
    await expect(probe.next('e.never', undefined, { timeoutMs: 5 })).rejects.toThrow('it was not hit at all');
  });

  test('nothing listens any more once the last watch has stopped', async () => {
    const first = probe.watch('f.x');
    const second = probe.watch('f.y');
    first.stop();
    first.stop();
    expect(probe.listening).toBe(true);
    second.stop();
    expect(probe.listening).toBe(false);
  });
});
