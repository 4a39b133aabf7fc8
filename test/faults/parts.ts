import { actorPart } from './actor/part.ts';
import { capturePart } from './capture/part.ts';
import { filesPart } from './files/part.ts';
import { lockOnDynamo, lockPart } from './lock/part.ts';
import type { Runner } from './part.ts';
import { queuePart } from './queue/part.ts';
import { queueOnDynamo } from './queue-dynamodb/part.ts';

/** The parts that `--part` can name. */
export const PARTS: readonly Runner[] = [
  queuePart,
  queueOnDynamo(),
  lockPart,
  lockOnDynamo(),
  actorPart,
  filesPart,
  capturePart,
];
