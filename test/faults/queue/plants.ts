import type pg from 'pg';
import type { Worker } from '../../../src/queue/index.ts';
import { plantSql } from '../plant.ts';

type Change = (source: string) => string;

/** Bugs that are planted in functions of the database. */
const IN_DATABASE: Readonly<Record<string, readonly (readonly [name: string, change: Change])[]>> = {};

export const PLANTS: readonly string[] = Object.keys(IN_DATABASE);

export async function plantInDatabase(plant: string, eye: pg.Pool): Promise<void> {
  for (const [name, change] of IN_DATABASE[plant] ?? []) await plantSql(eye, name, change);
}

export function plantInWorker(_plant: string, _worker: Worker): void {}
