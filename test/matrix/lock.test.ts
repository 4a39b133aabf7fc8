import { expect, test } from 'vitest';
import { LOCK_MOVES } from './lock-moves.ts';
import { type LockSide, setLockStage } from './lock-stage.ts';
import { type Ground, PATIENT, playOut, whoWaits } from './matrix.ts';
import { expectEachWriterToMove } from './writers.ts';

/** All of these are held alone: never by two, and no token of a name is told twice. */
const BREACHES = `
select format('%s is held by %s', g.name, count(*)) as breach
from pawl.lock_grant g where g.token is not null and g.outcome is null and g.expires_at > clock_timestamp()
group by g.space, g.name having count(*) > 1
union all
select format('token %s of %s is told %s times', t.token, t.name, count(*))
from (select space, name, token from pawl.lock_grant where token is not null and outcome is null
  union all select space, name, token from pawl.lock_past) t
group by t.space, t.name, t.token having count(*) > 1`;

const GROUND: Ground<LockSide> = {
  part: 'Locks',
  moves: LOCK_MOVES,
  set: setLockStage,
  breaches: async ({ witness }) => (await witness.query<{ breach: string }>(BREACHES)).rows.map(({ breach }) => breach),
};

test('each function of the locks that writes stands in the matrix', () =>
  expectEachWriterToMove('^lock_', LOCK_MOVES, ['lock_guarding_pids']));

test('who waits for whom among locks is as the documents say', PATIENT, async () => {
  const [found, documented] = await whoWaits(GROUND);
  expect(found).toEqual(documented);
});

test(
  'whatever two clients of the locks do at once, and however the first ends, no lock has two holders',
  PATIENT,
  async () => {
    expect(await playOut(GROUND)).toEqual([]);
  },
);
