import { onTestFinished } from 'vitest';
import type { AnyActorDefinition } from '../../../src/actor/index.ts';
import { type Scene, type WorldReport, world } from '../../../src/testing/index.ts';
import { freshDatabase } from '../../support/database.ts';

/** Plays a scenario with these actors in a database of its own, whose clock it moves. */
export async function play(
  actors: readonly AnyActorDefinition[],
  scenario: (scene: Scene) => Promise<void>,
  crash?: 'everywhere',
): Promise<WorldReport> {
  const database = await freshDatabase();
  const w = world({ actors, url: database.url, crash, patience: '50s' });
  onTestFinished(async () => {
    await w.close();
    await database.drop();
  });
  return w.run(scenario);
}
