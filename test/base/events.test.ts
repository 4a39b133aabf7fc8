import { once } from 'node:events';
import { describe, expect, test } from 'vitest';
import { Events } from '../../src/base/events.ts';

interface Map {
  claimed: { id: number };
  failed: string;
}

describe('Events', () => {
  test('listeners are called at once, in the order they were added', () => {
    const events = new Events<Map>();
    const seen: string[] = [];
    events.on('claimed', ({ id }) => seen.push(`first ${id}`));
    events.on('claimed', ({ id }) => seen.push(`second ${id}`));
    events.on('failed', () => seen.push('failed'));
    events.emit('claimed', { id: 1 });
    expect(seen).toEqual(['first 1', 'second 1']);
  });

  test('a listener is gone after it was removed, and removing twice is harmless', () => {
    const events = new Events<Map>();
    const seen: string[] = [];
    const listener = (text: string): void => void seen.push(text);
    const removeFirst = events.on('failed', listener);
    events.on('failed', listener);
    removeFirst();
    removeFirst();
    events.emit('failed', 'a');
    expect(seen).toEqual(['a']);
  });

  test('once is called once, even when the listener emits again', () => {
    const events = new Events<Map>();
    let calls = 0;
    events.once('failed', () => {
      calls++;
      events.emit('failed', 'again');
    });
    events.emit('failed', 'first');
    events.emit('failed', 'second');
    expect(calls).toBe(1);
    expect(events.has('failed')).toBe(false);
  });

  test('a listener removed or added while an event is delivered does not change who gets that event', () => {
    const events = new Events<Map>();
    const seen: string[] = [];
    events.on('failed', () => {
      removeSecond();
      events.on('failed', () => seen.push('late'));
    });
    const removeSecond = events.on('failed', () => seen.push('second'));
    events.emit('failed', 'x');
    expect(seen).toEqual(['second']);
  });

  test('a listener that throws or rejects disturbs no other listener and is reported', async () => {
    const reported: unknown[] = [];
    const events = new Events<Map>((error, event) => reported.push([event, error]));
    const seen: string[] = [];
    const [thrown, rejected] = [new Error('thrown'), new Error('rejected')];
    events.on('failed', () => {
      throw thrown;
    });
    events.on('failed', async () => {
      throw rejected;
    });
    events.on('failed', (text) => seen.push(text));
    events.emit('failed', 'x');
    expect(seen).toEqual(['x']);
    await Promise.resolve();
    expect(reported).toEqual([
      ['failed', thrown],
      ['failed', rejected],
    ]);
  });

  test('without a handler the failure of a listener is a process warning, and so is the failure of the handler', async () => {
    for (const events of [
      new Events<Map>(),
      new Events<Map>(() => {
        throw new Error('oops from handler');
      }),
    ]) {
      events.on('failed', () => {
        throw new Error('oops from listener');
      });
      const warned = once(process, 'warning');
      events.emit('failed', 'x');
      const [warning] = await warned;
      expect(warning).toMatchObject({
        name: 'PawlListenerWarning',
        message: expect.stringMatching(/a listener of "failed" failed: Error: oops from/),
      });
    }
  });
});
