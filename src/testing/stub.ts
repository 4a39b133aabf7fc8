import { faults } from '../base/fault.ts';
import { checkOptions, func } from '../base/options/options.ts';

/** A replacement for a side effect in a test: it is called like the real one, and records its calls. */
export interface Stub<A extends readonly unknown[], R> {
  (...args: A): Promise<R>;
  /** The arguments of every call so far, oldest first, those of crashed turns included. */
  readonly calls: readonly A[];
}

/** The points before and after the work of a stub, at which a world may crash. */
export const STUB_POINTS: readonly string[] = ['world.before_stub', 'world.after_stub'];

/** Replaces a side effect. A `world` with `crash: 'everywhere'` also crashes before and after each call of it. */
export function stub<A extends readonly unknown[], R>(work: (...args: A) => R | Promise<R>): Stub<A, R> {
  checkOptions('stub', { work }, { work: func<(...args: A) => R | Promise<R>>() });
  const calls: A[] = [];
  const call = async (...args: A): Promise<R> => {
    if (faults.armed) await faults.reach('world.before_stub');
    calls.push(args);
    const result = await work(...args);
    if (faults.armed) await faults.reach('world.after_stub');
    return result;
  };
  return Object.assign(call, { calls });
}
