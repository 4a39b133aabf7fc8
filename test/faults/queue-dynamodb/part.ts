import { type Runner, runner } from '../part.ts';
import { checkQueue } from './check.ts';
import type { QueueOnDynamoHistory } from './history.ts';
import { type DynamoQueuePlan, planQueue } from './plan.ts';
import { playQueue } from './play.ts';

const successes = ({ events, effects }: QueueOnDynamoHistory): Readonly<Record<string, number>> => ({
  'a job is enqueued': events.filter((event) => event.do === 'told').length,
  'a job takes effect': effects.size,
});

const operations = ({ events, effects }: QueueOnDynamoHistory): number => events.length + effects.size;

/** Some steps of each process are enough to meet the faults. */
const shorten = (plan: DynamoQueuePlan): DynamoQueuePlan => ({
  ...plan,
  processes: plan.processes.map((steps) => steps.slice(0, 6).map((step) => ({ ...step, n: Math.min(step.n, 10) }))),
});

/** The queue on DynamoDB: keys, delays, expiry, rests, batches, jobs after others. @param endpoint  of a DynamoDB Local; without, one is started */
export function queueOnDynamo(endpoint?: () => Promise<string>): Runner {
  return runner({
    name: 'queue-dynamodb',
    plan: planQueue,
    play: playQueue(endpoint),
    check: checkQueue,
    shorten,
    successes,
    operations,
  });
}
