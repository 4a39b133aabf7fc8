// Two queues, for workers that take a part of the work.
import { createQueue } from 'pawl/queue';

export default ({ engine }) => {
  const concurrency = { perKey: Infinity };
  const queue = createQueue(engine, 'media', { kinds: { encode: {}, mail: {} }, concurrency });
  const other = createQueue(engine, 'paper', { kinds: { print: {} }, concurrency });
  return {
    workers: [
      { queue, handlers: { encode: () => new Promise((resolve) => setTimeout(resolve, 700)), mail: () => {} } },
      { queue: other, handlers: { print: () => {} } },
    ],
  };
};
