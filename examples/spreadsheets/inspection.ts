import type { Client } from './client.ts';
import type { Expectation } from './feed.ts';
import { readWorkbook } from './workbook.ts';

/** What is wrong with each file, in words; empty when every cell is what was asked for. */
export async function inspect(client: Client, all: readonly Expectation[]): Promise<string[]> {
  const problems: string[] = [];
  for (const expected of all) {
    const problem = await inspectOne(client, expected).catch((error: unknown) => String(error));
    if (problem !== undefined) problems.push(`${expected.id}: ${problem}`);
  }
  return problems;
}

async function inspectOne(client: Client, { id, columns, rows }: Expectation): Promise<string | undefined> {
  const found = await readWorkbook(await client.download(id));
  const wanted = [columns, ...rows.values()];
  for (let at = 0; at < Math.max(found.length, wanted.length); at += 1) {
    const [is, should] = [JSON.stringify(found[at]), JSON.stringify(wanted[at])];
    if (is !== should) return `line ${at + 1} of the file is ${is}, but should be ${should}`;
  }
  return undefined;
}
