import { InvalidInput } from '../base/errors.ts';
import { suggest } from '../base/options.ts';

/** Fields nobody has declared: the body is trusted to know them, as it is in JavaScript. */
// oxlint-disable-next-line typescript/no-explicit-any -- with unknown, no body without a schema could use its own fields
export type LooseFields = Readonly<Record<string, any>>;

/** What a definition tells of its actors to those who create and raise them. */
export interface ActorKind<F = LooseFields, S extends string = string, In = F> {
  readonly name: string;
  readonly semaphores: readonly string[];
  /** Carries the types; never there. */
  readonly types?: ((input: In, semaphore: S) => F) | undefined;
}

/** The error for a name that was not declared, with the nearest that was. */
export function unknown(what: string, name: string, known: readonly string[], field: string): InvalidInput {
  const near = suggest(name, known);
  const all = known.length === 0 ? `there is no ${what} at all` : `there are ${known.join(', ')}`;
  const advice = near === undefined ? all : `did you mean "${near}"?`;
  return new InvalidInput(`there is no ${what} "${name}"; ${advice}`, { field });
}
