// The config file that the tests of `pawl worker` run, written as a user writes one.
import { createQueue } from 'pawl/queue';

export default ({ engine }) => {
  const queue = createQueue(engine, 'chores', {
    kinds: { slow: {}, stuck: {}, broken: { attempts: 1 } },
  });
  const handlers = {
    slow: async () => {
      await new Promise((resolve) => setTimeout(resolve, 700));
      return 'done';
    },
    stuck: ({ signal }) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason))),
    broken: () => {
      throw new Error('out of paper');
    },
  };
  return { workers: [{ queue, handlers, options: { concurrency: 2 } }] };
};
