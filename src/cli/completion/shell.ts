import type { Flag, Words } from './places.ts';

/** Quotes one word for any of the shells that are like the Bourne shell. */
export function quoted(text: string): string {
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Patterns of `case`: a place, and a command of that place. */
export function commandPatterns({ places }: Words): string {
  return places.flatMap(({ path, commands }) => commands.map(({ text }) => quoted(`${path} ${text}`))).join('|');
}

/** Patterns of `case`: a place, and an option that takes a value. */
export function valuePatterns(words: Words): string {
  return patternsOf(words, ({ takesValue }) => takesValue)
    .map(([pattern]) => pattern)
    .join('|');
}

/** Patterns of `case`, each with the values that the option may have. */
export function valueCases(words: Words): (readonly [pattern: string, values: readonly string[]])[] {
  return patternsOf(words, ({ values }) => values.length > 0).map(([pattern, { values }]) => [pattern, values]);
}

function patternsOf({ places, everywhere }: Words, picks: (flag: Flag) => boolean): [pattern: string, flag: Flag][] {
  const of = (flags: readonly Flag[], patternOf: (spelling: string) => string): [string, Flag][] =>
    flags.filter(picks).map((flag) => [flag.spellings.map(patternOf).join('|'), flag]);
  return [
    ...of(everywhere, (spelling) => `*${quoted(` ${spelling}`)}`),
    ...places.flatMap(({ path, flags }) => of(flags, (spelling) => quoted(`${path} ${spelling}`))),
  ];
}
