import type { Flag, Words } from './places.ts';
import { commandPatterns, quoted, valueCases, valuePatterns } from './shell.ts';

/** A script for bash 3.2 and newer. If the script knows no word, readline completes names of files. */
export function bashScript(known: Words): string {
  return `# Completion of pawl for bash. In ~/.bashrc: eval "$(pawl completion bash)"
_pawl() {
  local cur="\${COMP_WORDS[COMP_CWORD]}" place=pawl taker= words= word i
  local everywhere=${quoted(known.everywhere.flatMap(spellingsOf).join(' '))}
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="\${COMP_WORDS[i]}"
    if [ -n "$taker" ]; then
      [ "$word" = = ] || taker=
      continue
    fi
    case "$place $word" in
      *' --') return ;;
      ${valuePatterns(known)}) taker="$word" ;;
      ${commandPatterns(known)}) place="$place $word" ;;
    esac
  done
  [ "$cur" = = ] && cur=
  if [ -n "$taker" ]; then
    case "$place $taker" in
${valueCases(known)
  .map(([pattern, values]) => `      ${pattern}) words=${quoted(values.join(' '))} ;;`)
  .join('\n')}
    esac
  else
    case "$place,$cur" in
${placeCases(known)}
    esac
  fi
  while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$words" -- "$cur")
}
complete -o default -F _pawl pawl
`;
}

function placeCases({ places }: Words): string {
  const cases = places.flatMap(({ path, commands, values, flags }) => {
    const words = [...commands.map(({ text }) => text), ...values];
    return [
      `      ${quoted(`${path},-`)}*) words=${quoted(flags.flatMap(spellingsOf).join(' '))}" $everywhere" ;;`,
      ...(words.length > 0 ? [`      ${quoted(`${path},`)}*) words=${quoted(words.join(' '))} ;;`] : []),
    ];
  });
  return cases.join('\n');
}

function spellingsOf({ spellings }: Flag): readonly string[] {
  return spellings;
}
