import { validate } from '../../base/options/schema.ts';
import type { Definition } from '../definition.ts';
import type { UnitOwner } from '../work/run/unit.ts';
import { ClaimedUnit } from './claimed-unit.ts';
import type { ClaimOptions, PulledUnit, Puller } from './pull.ts';

/** Claims units of a queue that this program declares, with the schemas, the backoff and the limits of the declaration. */
export async function claimUnits(
  puller: Puller,
  owner: UnitOwner,
  definition: Definition,
  options: ClaimOptions,
): Promise<ClaimedUnit[]> {
  const units: ClaimedUnit[] = [];
  for (const pulled of await puller.claim(definition.name, options, owner)) {
    const unit = await accept(puller, definition, pulled);
    if (unit !== undefined) units.push(unit);
  }
  return units;
}

/** @returns undefined if it was settled at once: this program does not know the kind, or its schema refuses the payload */
async function accept(puller: Puller, { kinds }: Definition, pulled: PulledUnit): Promise<ClaimedUnit | undefined> {
  const kind = kinds.get(pulled.unit.kind);
  if (kind === undefined) {
    const reason = `no handler for kind "${pulled.unit.kind}"`;
    await puller.settleUnseen(puller.release(pulled.handle, false, { reason, wait: UNKNOWN_KIND_MS }));
    return undefined;
  }
  const backoff = pulled.unit.job.own?.backoff ?? kind.backoff;
  try {
    if (kind.schema !== undefined) {
      for (const job of pulled.unit.jobs) {
        job.accept(await validate(kind.schema, job.payload, `payload of job ${job.id}`));
      }
    }
    return new ClaimedUnit(pulled, puller, { backoff, maxBytes: kind.maxBytes });
  } catch (error) {
    await puller.settleUnseen(puller.fail(pulled.handle, error, {}, { backoff }));
    return undefined;
  }
}

/** How long a job of an unknown kind is delayed, so that a program that knows the kind can claim it. */
const UNKNOWN_KIND_MS = 30_000;
