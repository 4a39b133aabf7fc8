import { InvalidInput } from '../base/errors.ts';
import { show } from '../base/options/refusal.ts';

/** An actor, by its id; the result of `create` and `find`. */
export interface ActorHandle<S extends string = string> {
  readonly id: string;
  readonly type: string;
  /** Exists only for the types: the names of its semaphores. */
  readonly semaphores?: (name: S) => void;
}

/** An actor, or its id. */
export type ActorTarget<S extends string = string> = ActorHandle<S> | string;

/** @throws InvalidInput  the value is no id */
export function idOf(target: ActorTarget<never>): number {
  const id: unknown = typeof target === 'object' && target !== null ? target.id : target;
  const number = typeof id === 'string' && /^[1-9]\d{0,15}$/.test(id) ? Number(id) : Number.NaN;
  if (!Number.isSafeInteger(number)) {
    throw new InvalidInput(
      `an actor is named by its id, such as "42", or by the result of create(), not by ${show(target)}`,
      {
        field: 'actor',
      },
    );
  }
  return number;
}
