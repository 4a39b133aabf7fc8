import { onTestFinished } from 'vitest';
import type { Actors, AnyActorDefinition, Dispatcher, RunOptions } from '../../../src/actor/index.ts';

/** Actors of these types, on an engine, for one test. @param other  those of another program, whose database they share */
export type OpenActors = (definitions: readonly AnyActorDefinition[], other?: Actors) => Promise<Actors>;

let made = 0;
/** A name of a type that no other test has. */
export function fresh(name: string): string {
  made += 1;
  return `${name}${made}`;
}

/** Starts a dispatcher that is stopped at the end of the test. */
export async function start(actors: Actors, options: RunOptions = {}): Promise<Dispatcher> {
  const dispatcher = actors.run({ poll: '200ms', ...options });
  onTestFinished(() => dispatcher.stop({ timeout: 0 }));
  await dispatcher.started;
  return dispatcher;
}
