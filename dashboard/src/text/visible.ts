import { Fragment, options } from 'preact';

// A name looks like another name if it changes the direction of the text or has invisible characters. People act on what they see.

/** Invisible characters that control text. Line ends and tabs are allowed, and joiners too, which some scripts need as letters. */
const STEERING = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
/** In a name, also all blank characters, except one space between two words. */
const BLANK = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\u115f\u1160\u2800\u3164\uffa0]|(?! )\p{Zs}|^ | $| (?= )/gu;

/** The text with signs in place of its control characters. */
export function visible(text: string): string {
  return text.replace(STEERING, signOf);
}

/** The name with signs in place of all invisible characters. */
export function visibleName(name: string): string {
  return name.replace(BLANK, signOf);
}

function signOf(character: string): string {
  if (character === ' ') return '␣';
  return `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`;
}

/** Attributes that people read. Attributes that are sent or compared, such as a value, stay unchanged. */
const READ = ['title', 'aria-label', 'alt', 'placeholder'] as const;

/** Passes all texts of all pages through `visible`: names, errors and payloads. So no page can forget one. */
export function startVisible(): void {
  options.vnode = ({ type, props }) => {
    if (typeof type === 'string' || type === Fragment) show(props as Record<string, unknown>);
  };
}

function show(props: Record<string, unknown>): void {
  const { children } = props;
  if (typeof children === 'string') props['children'] = visible(children);
  else if (Array.isArray(children) && children.some((child) => typeof child === 'string'))
    props['children'] = children.map((child: unknown) => (typeof child === 'string' ? visible(child) : child));
  for (const name of READ) {
    const value = props[name];
    if (typeof value === 'string') props[name] = visible(value);
  }
}
