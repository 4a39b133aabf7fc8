import { test } from 'vitest';

/** `npm run test:long`: everything, and as much of it as is worth an hour. */
export const LONG: boolean = process.env['PAWL_LONG'] !== undefined;

/** `npm run test:models`: explorations of what is pure, or exhaustive, in full. Run by hand, each makes a part of itself, always the same. */
export const MODELS: boolean = LONG || process.env['PAWL_MODELS'] !== undefined;

/** All of an enumeration in a run of models, otherwise each seventh one. */
export function some<T>(all: readonly T[]): readonly T[] {
  return MODELS ? all : all.filter((_, nth) => nth % 7 === 0);
}

/** For what another test, which always runs, covers from another side, and which takes seconds of the processor. */
export const rarely: typeof test = (LONG ? test : test.skip) as typeof test;

/** All of them in a long run, otherwise those that differ most. */
export function most<T>(all: readonly T[], ...usual: readonly T[]): readonly T[] {
  return LONG ? all : usual;
}
