// Explores every order of the steps of a few clients, nearest states first. Each step is one request to the database.
import { createHash } from 'node:crypto';

/** A possible next step, and the state after it. */
export interface Step<S> {
  readonly what: string;
  readonly state: S;
}

export interface Protocol<S> {
  readonly start: S;
  steps(state: S): readonly Step<S>[];
  /** The fault of a state; undefined when it has none. */
  fault(state: S): string | undefined;
  /** Whether every live client has finished. */
  isOver(state: S): boolean;
  /** Maps states that differ only in the order of the clients to one state. */
  canonical?(state: S): S;
  /** The same as text, instead: JSON of a state that is alike. */
  name?(state: S): string;
}

export interface Exploration {
  readonly states: number;
  /** The first fault that was found, with the shortest path to it. */
  readonly fault: { readonly what: string; readonly trace: readonly string[] } | undefined;
  /** A path to a state from which no client can continue. */
  readonly stuck: readonly string[] | undefined;
}

/**
 * Explores all states, nearest first. With `canonical`, states that differ only in the order of the clients are one state. A
 * state is stored as text until its turn comes, then as a number.
 * @throws Error  if there are more than `most` states
 */
export function explore<S>(protocol: Protocol<S>, most: number): Exploration {
  const nameOf = (state: S): string => protocol.name?.(state) ?? JSON.stringify(protocol.canonical?.(state) ?? state);
  const numbers = new Map<string, number>();
  const texts: string[] = [];
  const from: { readonly before: number; readonly what: string }[] = [];
  const into: number[][] = [];
  const over: number[] = [];
  const enter = (state: S, before: number, what: string): number => {
    const text = nameOf(state);
    const key = digest(text);
    const known = numbers.get(key);
    if (known !== undefined) return known;
    if (texts.length >= most) throw new Error(`more than ${most} states`);
    numbers.set(key, texts.length);
    from.push({ before, what });
    into.push([]);
    return texts.push(text) - 1;
  };
  enter(protocol.start, -1, 'start');
  for (let at = 0; at < texts.length; at++) {
    const state: S = JSON.parse(texts[at] ?? '');
    texts[at] = '';
    const fault = protocol.fault(state);
    if (fault !== undefined) {
      return { states: texts.length, fault: { what: fault, trace: traceTo(from, at) }, stuck: undefined };
    }
    if (protocol.isOver(state)) over.push(at);
    for (const step of protocol.steps(state)) {
      const next = enter(step.state, at, step.what);
      if (next !== at) into[next]?.push(at);
    }
  }
  const lucky = new Set(over);
  for (const each of lucky) for (const before of into[each] ?? []) lucky.add(before);
  const stuck = from.findIndex((_, index) => !lucky.has(index));
  return { states: texts.length, fault: undefined, stuck: stuck < 0 ? undefined : traceTo(from, stuck) };
}

/** A hash of 128 bits: the chance that two of a million states share one is 1 in 10^26. */
function digest(text: string): string {
  return createHash('md5').update(text).digest('base64');
}

function traceTo(from: readonly { readonly before: number; readonly what: string }[], state: number): string[] {
  const trace: string[] = [];
  for (let at = state; at >= 0; at = from[at]?.before ?? -1) trace.unshift(from[at]?.what ?? '');
  return trace;
}
