import type { Program } from 'pawl/http';
import type { PostgresEngine } from 'pawl/postgres';

/** What `pawl dev` gives: a migrated database, and how long to run. */
export interface DevContext {
  /** Connected to the database; `pawl dev` stops it. */
  readonly engine: PostgresEngine;
  /** Of the same database, with its password: for child processes. */
  readonly url: string;
  /** Where an embedded database is kept; undefined for one that was given. */
  readonly embedded?: { readonly dataDir: string; readonly temporary: boolean } | undefined;
  /** How long to feed requests. Undefined: until `signal` aborts. */
  readonly exitAfterMs?: number | undefined;
  /** Whether a program reads the summary. */
  readonly json?: boolean | undefined;
  /** Aborts when it is time to finish. */
  readonly signal: AbortSignal;
  /** Of the front end. Undefined or 0: any free one. */
  readonly port?: number | undefined;
  /** Makes what is random repeatable. */
  readonly seed?: number | undefined;
  /** How many orders are there before the first is changed. Default 20,000. */
  readonly orders?: number | undefined;
  /** A line for people. */
  log(line: string): void;
  /** A button on the dashboard, where there is one. */
  offer?(control: DevControl): void;
  /** What the dashboard can work with, in addition to the database. */
  show?(part: Partial<Program>): void;
}

/** Something that can be made to happen, so that one sees what follows. */
export interface DevControl {
  readonly id: string;
  readonly title: string;
  readonly about: string;
  /** The page of the dashboard where it can be seen. */
  readonly look: string;
  /** What the button says when it is on. */
  readonly undo?: string;
  isOn?(): boolean;
  /** @returns what was done, in a sentence */
  run(): Promise<string>;
}

/** What an example did. */
export interface Figures {
  readonly ok: boolean;
  /** What went wrong, in words; only when something did. */
  readonly problems?: readonly string[];
  readonly [figure: string]: unknown;
}

/** One example, as `pawl dev` runs it: start, feed until told to end, finish, stop. */
export interface DevExample {
  readonly name: string;
  /** Starts its processes; resolves when they take requests. */
  start(): Promise<void>;
  /** Makes work until `signal` aborts. */
  feed(signal: AbortSignal): Promise<void>;
  /** Waits for what was asked for, and checks it. */
  finish(): Promise<Figures>;
  /** Ends what was started. Called in any case. */
  stop(): Promise<void>;
}
