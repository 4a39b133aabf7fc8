import { expect } from 'vitest';
import type * as Ledger from '../../examples/ledger/ledger.ts';
import { sharedDynamo } from '../support/dynamodb.ts';
import { rarely } from '../support/long.ts';
import { compiled } from './processes.ts';

const { runLedger } = await compiled<typeof Ledger>('ledger/ledger.js');

// In short in dev.test.ts.
rarely(
  'without the lock sums are wrong; with it every sum is right, through a SIGKILL',
  async ({ skip }) => {
    const local = await sharedDynamo();
    skip(local.kind === 'dynalite', 'moves are transactions');
    const lines: string[] = [];
    const result = await runLedger(local.endpoint, { log: (line) => lines.push(line) });
    expect(result, lines.join('\n')).toMatchObject({ wrong: 0, killed: 1, isTotalRight: true });
    expect(result.sums).toBeGreaterThan(0);
    expect(result.moves).toBeGreaterThan(0);
    expect(result.wrongUnlocked).toBeGreaterThan(0);
    // What the killed one had half done was ended by the next.
    expect(result.finishedForOthers).toBeGreaterThan(0);
  },
  90_000,
);
