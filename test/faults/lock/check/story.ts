import type { Violation } from '../../plan.ts';
import type { LockHistory, Operation } from '../history.ts';
import { SHARED } from '../plan.ts';

/** The events of a name around a moment, in the order of time. */
export function storyOf({ operations, decisions }: LockHistory, name: string, at: number): string[] {
  const lines: { at: number; text: string }[] = [];
  for (const operation of operations) {
    if (!operation.step.names.includes(name)) continue;
    const who = `${operation.id} (${modeOf(operation)})`;
    const add = (when: number | undefined, text: string): void => {
      if (when !== undefined) lines.push({ at: when, text: `${who} ${text}` });
    };
    add(operation.askedAt, `asks, to wait ${operation.step.waitMs ?? 'for ever'}`);
    add(operation.grantedAt, `has it, token ${operation.token}`);
    add(operation.believedUntil, 'believed so far');
    add(operation.lostAt, `is told that it is lost: ${operation.lostReason}`);
    add(operation.end?.at, `ended: ${operation.end?.how} ${operation.end?.error ?? ''}`);
  }
  for (const { at: when, what, name: of, nonce, ticket, token } of decisions) {
    if (of === name) lines.push({ at: when, text: `${what} ${nonce.slice(0, 8)} ${token ?? ticket ?? ''}` });
  }
  return lines
    .filter((line) => Math.abs(line.at - at) < 4000)
    .toSorted((a, b) => a.at - b.at)
    .map((line) => `${(line.at - at).toFixed(1)} ${line.text}`)
    .slice(0, 80);
}

function modeOf({ step: { capacity, leaseMs } }: Operation): string {
  return `${capacity === 1 ? 'alone' : capacity === SHARED ? 'shared' : `of ${capacity}`}, lease ${leaseMs}`;
}

export function violation(history: LockHistory, rule: string, about: string, name: string, at: number): Violation {
  return { rule, about, story: storyOf(history, name, at) };
}
