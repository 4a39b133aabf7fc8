import { InvalidArgumentError } from 'commander';
import type { PriorityRange, WorkOptions } from '../../queue/index.ts';
import { EXIT, Failure } from '../output/failure.ts';

/** The part of the work that `pawl worker` takes. */
export interface TakenFlags {
  readonly kinds?: readonly string[];
  readonly priority?: PriorityRange;
}

/** Reads `--kinds send,bill`. @throws InvalidArgumentError */
export function kindsArgument(value: string): readonly string[] {
  const kinds = value.split(',').map((kind) => kind.trim());
  if (kinds.includes('')) throw new InvalidArgumentError('It must be names of kinds with a comma between them.');
  return kinds;
}

/** Reads `--priority -5..-1`; either end may be left out. @throws InvalidArgumentError */
export function priorityArgument(value: string): PriorityRange {
  const [, min = '', max = ''] = /^(-?\d+)?\.\.(-?\d+)?$/.exec(value) ?? [];
  if (min === '' && max === '') {
    throw new InvalidArgumentError(
      'It must be two whole numbers, such as -5..-1; one of them may be left out, as in ..-1.',
    );
  }
  return { min: min === '' ? undefined : Number(min), max: max === '' ? undefined : Number(max) };
}

/**
 * The workers of a config file, for a part of their work. A worker whose queue has none of the kinds is left out.
 * @throws Failure  no queue of the file has a kind
 */
export function withTaken<E extends { readonly handlers: object; readonly options?: WorkOptions }>(
  entries: readonly E[],
  { kinds, priority }: TakenFlags,
): readonly E[] {
  if (kinds === undefined && priority === undefined) return entries;
  const all = new Set(entries.flatMap(({ handlers }) => Object.keys(handlers)));
  const unknown = kinds?.find((kind) => !all.has(kind));
  if (unknown !== undefined) {
    throw new Failure(`no worker of the config file has a handler for kind "${unknown}"`, {
      exit: EXIT.usage,
      next: `the kinds are ${[...all].join(', ')}`,
    });
  }
  return entries.flatMap((entry) => {
    const own = kinds?.filter((kind) => Object.hasOwn(entry.handlers, kind));
    if (own?.length === 0) return [];
    const taken = { ...(own && { kinds: own }), ...(priority && { priority }) };
    return [{ ...entry, options: { ...entry.options, ...taken } }];
  });
}
