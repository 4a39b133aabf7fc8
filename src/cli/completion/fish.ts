import type { Flag, Words } from './places.ts';

/** A script for fish, to be sourced, or to be a file in the folder of completions. */
export function fishScript({ places, everywhere }: Words): string {
  const lines = places.flatMap(({ path, commands, values, flags }) => [
    ...commands.map(({ text, about }) => `${at(path)} -f -a ${literal(text)} -d ${literal(about)}`),
    ...(values.length === 0 ? [] : [`${at(path)} -f -a ${literal(values.join(' '))}`]),
    ...flags.map((flag) => `${at(path)} ${optionWords(flag)}`),
  ]);
  const valued = [...patternsOf('*', everywhere), ...places.flatMap(({ path, flags }) => patternsOf(path, flags))];
  const paths = places.flatMap(({ path, commands }) => commands.map(({ text }) => literal(`${path} ${text}`)));
  return `# Completion of pawl for fish: pawl completion fish > ~/.config/fish/completions/pawl.fish
function __pawl_place
  set -l place pawl
  set -l taker ''
  for word in (commandline -opc)[2..-1]
    if test -n "$taker"
      set taker ''
      continue
    end
    switch "$place $word"
      case ${valued.join(' ')}
        set taker $word
      case ${paths.join(' ')}
        set place "$place $word"
    end
  end
  echo $place
end
${everywhere.map((flag) => `complete -c pawl ${optionWords(flag)}`).join('\n')}
${lines.join('\n')}
`;
}

function at(path: string): string {
  return `complete -c pawl -n ${literal(`test (__pawl_place) = "${path}"`)}`;
}

function optionWords({ spellings, about, takesValue, values }: Flag): string {
  const names = spellings.map((one) => (one.startsWith('--') ? `-l ${one.slice(2)}` : `-s ${one.slice(1)}`)).join(' ');
  const value = values.length > 0 ? ` -x -a ${literal(values.join(' '))}` : takesValue ? ' -r' : '';
  return `${names}${value} -d ${literal(about)}`;
}

/** Patterns of `case`: a place, and an option that takes a value. */
function patternsOf(path: string, flags: readonly Flag[]): string[] {
  const valued = flags.filter(({ takesValue }) => takesValue);
  return valued.flatMap(({ spellings }) => spellings.map((one) => literal(`${path} ${one}`)));
}

/** Between single quotes, fish reads two escapes, and nothing else. */
function literal(text: string): string {
  return `'${text.replaceAll(/[\\']/g, String.raw`\$&`)}'`;
}
