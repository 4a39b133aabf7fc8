/** About as many bytes as this process hashes while a slow disk commits a row. */
const AHEAD_BYTES = 4 << 20;

/**
 * Reads up to 4 MiB while `until` is pending: hashing needs the processor, and a commit needs the disk.
 * @returns the bytes that were read, then the rest
 */
export function readAhead(chunks: AsyncGenerator<Buffer, void>, until: Promise<unknown>): AsyncGenerator<Buffer, void> {
  const held: Buffer[] = [];
  const reading = fill(held, chunks, until);
  // The consumer of the bytes gets the error; there may be no consumer.
  reading.catch(() => {});
  return taken(held, reading, chunks);
}

async function fill(held: Buffer[], chunks: AsyncGenerator<Buffer, void>, until: Promise<unknown>): Promise<void> {
  let isOver = false;
  const end = (): void => {
    isOver = true;
  };
  until.then(end, end);
  for (let size = 0; !isOver && size < AHEAD_BYTES; ) {
    const { value } = await chunks.next();
    if (value === undefined) return;
    held.push(value);
    size += value.length;
  }
}

async function* taken(
  held: Buffer[],
  reading: Promise<void>,
  chunks: AsyncGenerator<Buffer, void>,
): AsyncGenerator<Buffer, void> {
  await reading;
  for (let chunk = held.shift(); chunk !== undefined; chunk = held.shift()) yield chunk;
  yield* chunks;
}
