import { Fragment, options } from 'preact';

// A name that turns the direction of the text, or holds what cannot be seen, looks like another name. People act on what they see.

/** What steers text and is not seen itself. Line ends and tabs lay text out; joiners are letters of some scripts. */
const STEERING = /(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
/** In a name, also whatever is blank: but one space between two words. */
const BLANK = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\u115f\u1160\u2800\u3164\uffa0]|(?! )\p{Zs}|^ | $| (?= )/gu;

/** The text with signs for what steers it. */
export function visible(text: string): string {
  return text.replace(STEERING, signOf);
}

/** A name with signs for everything in it that would not be seen. */
export function visibleName(name: string): string {
  return name.replace(BLANK, signOf);
}

function signOf(character: string): string {
  if (character === ' ') return '␣';
  return `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`;
}

/** Attributes that people read. What is sent or compared, such as a value, stays as it is. */
const READ = ['title', 'aria-label', 'alt', 'placeholder'] as const;

/** Whatever any page writes goes through `visible`: names, errors and payloads alike, so that no page can forget one. */
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
