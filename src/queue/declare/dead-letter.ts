import { InvalidInput } from '../../base/errors.ts';
import { suggest } from '../../base/options/options.ts';
import type { Definition, Kind } from '../definition.ts';

interface LetterOf {
  /** In words, the kind or job of the dead letter. */
  readonly whose: string;
  readonly hasKey: boolean;
  readonly field: string;
}

/**
 * The kind of dead letters, which the database must never refuse.
 * @throws InvalidInput  there is no such kind, or it cannot be one
 */
export function letterKind(
  kinds: ReadonlyMap<string, Kind>,
  onError: string,
  { whose, hasKey, field }: LetterOf,
): Kind {
  const letter = kinds.get(onError);
  if (letter === undefined) {
    const near = suggest(onError, [...kinds.keys()]);
    const advice = near === undefined ? `the kinds are ${[...kinds.keys()].join(', ')}` : `did you mean "${near}"?`;
    throw new InvalidInput(`${whose} has the unknown kind "${onError}" for its dead letters; ${advice}`, { field });
  }
  if (letter.unique !== undefined) {
    throw new InvalidInput(
      `kind "${onError}" is unique, so a second dead letter of a key would not be enqueued; name another kind as onError of ${whose}`,
      { field },
    );
  }
  if (letter.needsKey && !hasKey) {
    throw new InvalidInput(
      `kind "${onError}" needs a key, so ${whose} needs a key, too: its dead letters are of that kind`,
      {
        field,
      },
    );
  }
  return letter;
}

/** The same rules as pawl.queue_note_letters() in SQL. @param of  the job among several: `jobs[3]` @throws InvalidInput */
export function checkOwnLetter(
  { name, kinds, blocksKeys }: Definition,
  { onError, key }: { readonly onError: string | undefined; readonly key: string | undefined },
  of?: string,
): void {
  if (onError === undefined) return;
  const field = of === undefined ? 'onError' : `${of}.onError`;
  if (blocksKeys) {
    throw new InvalidInput(
      `queue "${name}" has keyOnError: 'block': a dead letter has the key of its job, and would wait behind it; leave onError out`,
      { field },
    );
  }
  letterKind(kinds, onError, { whose: of ?? 'the job', hasKey: key !== undefined, field });
}
