/** Spans: neighbouring jobs of one piece. The head of a shard names jobs by spans. */

/** Neighbouring jobs of one piece, with their attempts and their time. */
export interface Span {
  readonly piece: number;
  readonly index: number;
  readonly n: number;
  /** The attempts that have begun and count; {@link POKE} for a job of a key, since the head of the key counts them. */
  readonly attempts: number;
  /** The jobs are not claimed before this time, in milliseconds since 1970 by the service's clock; 0: they may be claimed at once. */
  readonly dueAt: number;
}

/** Neighbouring jobs of one piece. */
export type Stretch = Pick<Span, 'piece' | 'index' | 'n'>;

/** Marks a poke: the span says only that a worker has to read the head of a key. There may be two of them for one job. */
export const POKE = -1;

/** The place of a job in its shard. */
export interface Spot {
  readonly piece: number;
  readonly index: number;
}

export function plain(span: Stretch): Span {
  return { ...span, attempts: 0, dueAt: 0 };
}

/** A span without the jobs of the other spans. */
export function runsOf(span: Stretch, without: readonly Stretch[]): Stretch[] {
  const runs: { piece: number; index: number; n: number }[] = [];
  for (let index = span.index; index < span.index + span.n; index += 1) {
    if (without.some((one) => one.piece === span.piece && index >= one.index && index < one.index + one.n)) continue;
    const last = runs.at(-1);
    if (last !== undefined && last.index + last.n === index) last.n += 1;
    else runs.push({ piece: span.piece, index, n: 1 });
  }
  return runs;
}

export function spansWithout(spans: readonly Span[], isGone: (spot: Spot) => boolean): Span[] {
  return spans.flatMap((span) => {
    const gone: Stretch[] = [];
    for (let index = span.index; index < span.index + span.n; index += 1) {
      if (isGone({ piece: span.piece, index })) gone.push({ piece: span.piece, index, n: 1 });
    }
    return gone.length === 0 ? [span] : runsOf(span, gone).map((run) => ({ ...span, ...run }));
  });
}

export function joined(spans: readonly Stretch[]): Stretch[] {
  const sorted = spans.toSorted((a, b) => a.piece - b.piece || a.index - b.index);
  const all: { piece: number; index: number; n: number }[] = [];
  for (const span of sorted) {
    const last = all.at(-1);
    if (last?.piece === span.piece && last.index + last.n === span.index) last.n += span.n;
    else all.push({ ...span });
  }
  return all;
}

/** Whether a job is in one of the spans. */
export function isIn(spans: readonly Stretch[], { piece, index }: Spot): boolean {
  return spans.some((span) => span.piece === piece && index >= span.index && index < span.index + span.n);
}

export function writeSpans(spans: readonly Span[]): string {
  return JSON.stringify(spans.map(toTuple));
}

export function toTuple({ piece, index, n, attempts, dueAt }: Span): readonly number[] {
  if (dueAt !== 0) return [piece, index, n, attempts, dueAt];
  if (attempts !== 0) return [piece, index, n, attempts];
  return n === 1 ? [piece, index] : [piece, index, n];
}

export function readSpans(tuples: readonly unknown[]): Span[] {
  return tuples.map((tuple) => {
    const [piece = 0, index = 0, n = 1, attempts = 0, dueAt = 0] = Array.isArray(tuple) ? tuple.map(Number) : [];
    return { piece, index, n, attempts, dueAt };
  });
}
