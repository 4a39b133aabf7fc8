/** New values for some of the fields. */
export type Patch<F> = { readonly [K in keyof F]?: F[K] | undefined };

/**
 * The outcome of a turn, which its body returns. Made by `a.to()`, `a.fatal()`, `a.stay()`, `a.nap()`, `a.hibernate()` and
 * `a.done()`.
 */
export interface Outcome<To extends string = string> {
  readonly kind: 'to' | 'stay' | 'nap' | 'hibernate' | 'done';
  /** The next state; only of `to`. */
  readonly state: To | undefined;
  /** Fields that change; the others stay as they are. */
  readonly patch: Readonly<Record<string, unknown>> | undefined;
  /** Only of `nap`. */
  readonly ms: number | undefined;
  /** Only of `done`. */
  readonly result: unknown;
  /** Of `fatal`: why the actor is moved. */
  readonly error?: string | undefined;
}

/** Only a turn makes it. So the turn knows that an outcome is its own, and that its target was checked. */
export class MadeOutcome<To extends string> implements Outcome<To> {
  /** The turn that made it. */
  readonly turn: object;
  readonly kind: Outcome['kind'];
  readonly state: To | undefined;
  readonly patch: Readonly<Record<string, unknown>> | undefined;
  readonly ms: number | undefined;
  readonly result: unknown;
  readonly error: string | undefined;

  constructor(turn: object, kind: Outcome['kind'], parts: Partial<Omit<Outcome<To>, 'kind'>> = {}) {
    this.turn = turn;
    this.kind = kind;
    this.state = parts.state;
    this.patch = parts.patch;
    this.ms = parts.ms;
    this.result = parts.result;
    this.error = parts.error;
  }
}
