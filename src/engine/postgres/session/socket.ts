/**
 * Closes a client's connection without saying goodbye: the other side may be gone, and node-postgres would wait for its answer.
 * The client's pending queries fail at once. If the client's socket cannot be found, its owner has to close it.
 */
export function destroySocket(client: object): void {
  const stream: unknown = Reflect.get(Object(Reflect.get(client, 'connection')), 'stream');
  if (stream instanceof Object && 'destroy' in stream && typeof stream.destroy === 'function') stream.destroy();
}
