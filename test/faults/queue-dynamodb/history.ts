import type { Note } from '../member/member.ts';
import type { Step } from './plan.ts';

/** What a process notes. `name`: of a step, `client 0/3`. */
export type QueueEvent =
  | {
      readonly do: 'ask';
      readonly name: string;
      readonly step: Step;
      readonly nth: number;
      readonly after: string | null;
    }
  | { readonly do: 'told'; readonly name: string; readonly id: string }
  | { readonly do: 'sealed'; readonly name: string }
  | { readonly do: 'finished' }
  | { readonly do: 'begin'; readonly name: string; readonly id: string; readonly attempt: number };

/** What a handler wrote under the guard of its unit: rows of a key, and of each other job, in the order of their commits. */
export interface Effect {
  readonly name: string;
  readonly id: string;
  /** Just before its commit, by the clock of the notes. */
  readonly at: number;
}

/** What became of a job whose id a process was told. */
export interface Outcome {
  readonly id: string;
  readonly status: string;
  readonly completions: number;
}

export interface QueueOnDynamoHistory {
  readonly events: readonly Note<QueueEvent>[];
  /** By the row. */
  readonly effects: ReadonlyMap<string, readonly Effect[]>;
  readonly outcomes: ReadonlyMap<string, Outcome>;
  readonly complaints: readonly { readonly rule: string; readonly about: string; readonly story: readonly string[] }[];
}

/** Where the effects of a job are. */
export function rowOf(name: string, key: string | null): string {
  return key === null ? `job ${name}` : `key ${key}`;
}

/** The name of the dead letter of a job. */
export function letterOf(name: string): string {
  return `${name} letter`;
}

/** The name of the callback of a batch. */
export function callbackOf(name: string): string {
  return `${name} done`;
}
