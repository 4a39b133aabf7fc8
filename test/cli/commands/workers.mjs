// The config file that the tests of `pawl worker` run, written as a user writes one.
import { createQueue } from 'pawl/queue';

/** By hand what zod, valibot or arktype make. */
const Paint = {
  '~standard': {
    version: 1,
    vendor: 'test',
    validate: (value) =>
      typeof value?.colour === 'string' ? { value } : { issues: [{ message: 'must be a name', path: ['colour'] }] },
  },
};

export default ({ engine }) => {
  const queue = createQueue(engine, 'chores', {
    kinds: { slow: {}, stuck: {}, broken: { attempts: 1 }, paint: { payload: Paint } },
  });
  const handlers = {
    slow: async () => {
      await new Promise((resolve) => setTimeout(resolve, 700));
      return 'done';
    },
    stuck: ({ signal }) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
    paint: () => {},
    broken: () => {
      throw new Error('out of paper');
    },
  };
  return { workers: [{ queue, handlers, options: { concurrency: 2 } }] };
};
