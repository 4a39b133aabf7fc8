/**
 * Closes a client's connection without saying goodbye: the other side may be gone, and node-postgres waits for its answer.
 * What the client was asked fails at once. A client whose socket cannot be found is left to its owner.
 */
export function destroySocket(client: object): void {
  const stream: unknown = Reflect.get(Object(Reflect.get(client, 'connection')), 'stream');
  if (stream instanceof Object && 'destroy' in stream && typeof stream.destroy === 'function') stream.destroy();
}
