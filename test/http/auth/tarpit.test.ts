import { beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { RateLimiter } from '../../../src/http/auth/rate.ts';
import { Tarpit } from '../../../src/http/auth/tarpit.ts';
import { type House, makeHouse } from '../house.ts';

const TOKEN = 'a-token-0123456789';

let house: House;
beforeAll(async () => {
  house = await makeHouse();
  return () => house.stop();
});

test('a caller that is too fast gets as many answers as one that keeps to its rate', () => {
  vi.useFakeTimers({ toFake: ['performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const limiter = new RateLimiter({ burst: 10, perSecond: 50 });
  let taken = 0;
  for (let ms = 0; ms < 10_000; ms += 15) {
    if (limiter.tryTake('ada')) taken += 1;
    vi.advanceTimersByTime(15);
  }
  expect(taken).toBeGreaterThan(495);
  expect(taken).toBeLessThan(515);
});

test('a stranger who asks too often waits for the refusal, and a known caller of the same address does not', async () => {
  const visitor = house.open({
    auth: { tokens: [{ name: 'ci', token: TOKEN, role: 'viewer' }] },
    rate: { burst: 3, perSecond: 1 },
  });
  onTestFinished(() => visitor.handler.stop());
  // In a second one request comes back, and the refusal ends: it passes when it is told to.
  vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  const guess = (): Promise<number> =>
    visitor.ask('/api/v1/me', { headers: { authorization: 'Bearer a-token-that-is-none' } }).then((one) => one.status);
  expect([await guess(), await guess(), await guess()]).toEqual([401, 401, 401]);
  let heard: number | undefined;
  const refused = guess().then((status) => {
    heard = status;
  });
  const known = visitor.ask('/api/v1/me', { headers: { authorization: `Bearer ${TOKEN}` } });
  expect((await known).status).toBe(200);
  let passedMs = 0;
  for (; heard === undefined; passedMs += 10) await vi.advanceTimersByTimeAsync(10);
  await refused;
  expect(heard).toBe(429);
  expect(passedMs).toBeGreaterThanOrEqual(990);
});

test('no more than 500 refusals are held, and none after the server stops', async () => {
  const tarpit = new Tarpit();
  let released = 0;
  const hold = (): Promise<void> =>
    tarpit.hold().then(() => {
      released += 1;
    });
  const held = Array.from({ length: 500 }, hold);
  await hold();
  expect(released).toBe(1);
  tarpit.stop();
  await Promise.all([...held, hold()]);
  expect(released).toBe(502);
});
