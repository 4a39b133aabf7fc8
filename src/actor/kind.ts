/** Fields without a declaration: the body is trusted to know them, as it is in JavaScript. */
// oxlint-disable-next-line typescript/no-explicit-any -- with unknown, no body without a schema could use its own fields
export type LooseFields = Readonly<Record<string, any>>;

/** A definition as far as programs need it that create its actors and raise their semaphores. */
export interface ActorKind<F = LooseFields, S extends string = string, In = F> {
  readonly name: string;
  readonly semaphores: readonly string[];
  /** Exists only for the types. */
  readonly types?: ((input: In, semaphore: S) => F) | undefined;
}
