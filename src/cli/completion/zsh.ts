import type { Flag, Word, Words } from './places.ts';
import { commandPatterns, quoted, valueCases, valuePatterns } from './shell.ts';

/** A script for zsh, to be evaluated after compinit, or as the file `_pawl` in a folder of `fpath`. */
export function zshScript(known: Words): string {
  return `#compdef pawl
# Completion of pawl for zsh. In ~/.zshrc, after compinit: eval "$(pawl completion zsh)"
_pawl() {
  local place=pawl taker= word
  local -a found everywhere
  everywhere=(${known.everywhere.flatMap(optionWords).join(' ')})
  for word in "\${(@)words[2,CURRENT-1]}"; do
    if [[ -n "$taker" ]]; then
      taker=
      continue
    fi
    case "$place $word" in
      (*' --') _files; return ;;
      (${valuePatterns(known)}) taker="$word" ;;
      (${commandPatterns(known)}) place="$place $word" ;;
    esac
  done
  if [[ -n "$taker" ]]; then
    case "$place $taker" in
${valueCases(known)
  .map(([pattern, values]) => `      (${pattern}) found=(${values.map(quoted).join(' ')}) ;;`)
  .join('\n')}
    esac
  else
    case "$place,\${words[CURRENT]}" in
${placeCases(known)}
    esac
  fi
  if (( $#found )); then _describe pawl found; else _files; fi
}
if [[ "$funcstack[1]" = _pawl ]]; then _pawl "$@"; else compdef _pawl pawl; fi
`;
}

function placeCases({ places }: Words): string {
  const cases = places.flatMap(({ path, commands, values, flags }) => {
    const words = [...commands.map(described), ...values.map(quoted)];
    return [
      `      (${quoted(`${path},-`)}*) found=(${flags.flatMap(optionWords).join(' ')} "\${(@)everywhere}") ;;`,
      ...(words.length > 0 ? [`      (${quoted(`${path},`)}*) found=(${words.join(' ')}) ;;`] : []),
    ];
  });
  return cases.join('\n');
}

function optionWords({ spellings, about }: Flag): string[] {
  return spellings.map((text) => described({ text, about }));
}

function described({ text, about }: Word): string {
  return quoted(`${text.replaceAll(':', String.raw`\:`)}:${about}`);
}
