import { expect, test } from 'vitest';
import { ACTOR_MOVES } from './actor-moves.ts';
import { type ActorSide, setActorStage } from './actor-stage.ts';
import { type Ground, PATIENT, playOut, whoWaits } from './matrix.ts';
import { expectEachWriterToMove } from './writers.ts';

/** The worker that runs an actor has a row and can be rescued, a turn is in the history once, and a page of a tag is open once. */
const BREACHES = `
select format('actor %s is run by worker %s, of whom nobody knows', a.id, a.worker) as breach
from pawl.actor_instance a where a.worker is not null and not exists (select 1 from pawl.actor_worker w where w.id = a.worker)
union all
select format('the turn of epoch %s of actor %s ended %s times', t.epoch, t.actor, count(*))
from pawl.actor_transition t where t.epoch > 0 group by t.actor, t.epoch having count(*) > 1
union all
select format('page %s is open %s times', p.tag, count(*))
from pawl.actor_page p where p.resolved_at is null group by p.tag having count(*) > 1`;

const GROUND: Ground<ActorSide> = {
  part: 'Actors',
  moves: ACTOR_MOVES,
  set: setActorStage,
  breaches: async ({ witness }) => (await witness.query<{ breach: string }>(BREACHES)).rows.map(({ breach }) => breach),
};

test('each function of the actors that writes stands in the matrix', () =>
  expectEachWriterToMove('^(actor_|page_)', ACTOR_MOVES, ['actor_give_back_except', 'actor_suspects']));

test('who waits for whom among actors is as the documents say', PATIENT, async () => {
  const [found, documented] = await whoWaits(GROUND);
  expect(found).toEqual(documented);
});

test(
  'whatever two of the actors do at once, and however the first ends, no turn is lost or doubled',
  PATIENT,
  async () => {
    expect(await playOut(GROUND)).toEqual([]);
  },
);
