import { expect, test } from 'vitest';
import { breaches } from '../queue/invariants.ts';
import { type Ground, PATIENT, playOut, whoWaits } from './matrix.ts';
import { QUEUE_MOVES } from './queue-moves.ts';
import { type QueueSide, setQueueStage } from './queue-stage.ts';
import { expectEachWriterToMove } from './writers.ts';

const GROUND: Ground<QueueSide> = {
  part: 'Queue',
  moves: QUEUE_MOVES,
  set: setQueueStage,
  breaches: ({ witness }) => breaches(witness),
};

test('each function of the queue that writes stands in the matrix', () =>
  expectEachWriterToMove('^(queue_|(enqueue|update|cancel|retry|finish|skip|erase|redrive|move)$)', QUEUE_MOVES, [
    'queue_due',
    'queue_has_watches',
    'queue_is_held',
    'queue_open_lanes',
  ]));

test('who waits for whom in the queue is as the documents say', PATIENT, async () => {
  const [found, documented] = await whoWaits(GROUND);
  expect(found).toEqual(documented);
});

test('whatever two of the queue do at once, and however the first ends, the queue stays whole', PATIENT, async () => {
  expect(await playOut(GROUND)).toEqual([]);
});
