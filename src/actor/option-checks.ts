import { checkOptions, optional, text } from '../base/options/options.ts';

const createShape = { key: optional(text({ min: 1, maxBytes: 1000 })) };
const sendShape = { name: text({ min: 1, max: 200 }) };

/** The key among the options of a `create`, in a turn or outside. @throws InvalidInput */
export function readKey(options: unknown): string | undefined {
  return checkOptions('create', options, createShape).key;
}

/** The name of a message. @throws InvalidInput */
export function requireMessageName(name: unknown): void {
  checkOptions('send', { name }, sendShape);
}
