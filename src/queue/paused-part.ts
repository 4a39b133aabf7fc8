import { InvalidInput } from '../base/errors.ts';
import { checkOptions, optional, text } from '../base/options/options.ts';

/** The jobs to pause: those of a kind, of a key, with a tag, or those that have all that is named. */
export interface PartOptions<N extends string = string> {
  readonly kind?: N | undefined;
  readonly key?: string | undefined;
  readonly tag?: string | undefined;
}

/** A part of a queue that is paused: null where it names none. */
export interface PausedPart {
  readonly kind: string | null;
  readonly key: string | null;
  readonly tag: string | null;
  readonly since: Date;
}

/** The same as JSON. */
export interface ShownPart extends Omit<PausedPart, 'since'> {
  readonly since: string;
}

/** The same, as claims answer it. */
export interface StoredPart extends ShownPart {
  readonly nth: number;
}

const shape = {
  kind: optional(text({ min: 1 })),
  key: optional(text({ min: 1 })),
  tag: optional(text({ min: 1 })),
};

/** @throws InvalidInput  an option is unknown, or nothing is named */
export function readPart(what: 'pause' | 'resume', part: PartOptions): Omit<PausedPart, 'since'> {
  const { kind, key, tag } = checkOptions(what, part, shape);
  if (kind === undefined && key === undefined && tag === undefined) {
    throw new InvalidInput(
      `${what}() with options names a kind, a key or a tag; without options it is for the whole queue`,
    );
  }
  return { kind: kind ?? null, key: key ?? null, tag: tag ?? null };
}

export function toPausedPart({ kind, key, tag, since }: ShownPart): PausedPart {
  return { kind, key, tag, since: new Date(since) };
}

/** The paused part that a unit is of, if any. */
export function pausedPartOf(
  parts: readonly StoredPart[],
  {
    kind,
    key,
    jobs,
  }: {
    readonly kind: string;
    readonly key: string | null;
    readonly jobs: readonly { readonly tags: readonly string[] }[];
  },
): StoredPart | undefined {
  return partOf(parts, { kind, key, tags: jobs.flatMap(({ tags }) => tags) });
}

/** The paused part that a job is of, if any. */
export function partOf<P extends ShownPart>(
  parts: readonly P[],
  job: { readonly kind: string; readonly key: string | null; readonly tags: readonly string[] },
): P | undefined {
  return parts.find(
    ({ kind, key, tag }) =>
      (kind === null || kind === job.kind) &&
      (key === null || key === job.key) &&
      (tag === null || job.tags.includes(tag)),
  );
}

/** In words: `kind "send", tag "acme"`. */
export function namePart({ kind, key, tag }: Omit<PausedPart, 'since'>): string {
  const named = Object.entries({ kind, key, tag }).filter(([, value]) => value !== null);
  return named.map(([what, value]) => `${what} "${value}"`).join(', ');
}

const YEAR_MS = 365.2425 * 86_400_000;

/** For how long the jobs of a paused part are delayed, until it is resumed: see pawl.queue_set_aside_at(). */
export function setAsideMs({ nth }: StoredPart): number {
  return (278_000 + nth * 100) * YEAR_MS;
}
