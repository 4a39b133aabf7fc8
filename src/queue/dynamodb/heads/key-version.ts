/**
 * Versions of the head of a key. They rise with each change, and no version is used twice, although the head may be removed and made again: each
 * claim begins with versions far above those of the claim before.
 */
import { placeOf, sequenceOf } from './place.ts';

/** The step from the first version of one claim to that of the next. A claim changes the head of a key fewer times. */
const OF_CLAIM = 1024;
/** The same step for heads that no claim has changed yet. Their versions are below 0, by the piece of their first job, so no claim has them. */
const UNTAKEN = 2 ** 15;

/** The version after a change by which a claim takes the key, or its poke answers for the key. */
export function versionTaken(version: number, token: number): number {
  return Math.max(version + 1, token * OF_CLAIM);
}

/** The version after any other change. @param version  undefined: there is no head, and the change makes it for this job */
export function versionFor(version: number | undefined, job: number): number {
  return version === undefined ? -sequenceOf(placeOf(job).piece) * UNTAKEN : version + 1;
}

/** Whether the claim after this fence begins with a greater version than this one. */
export function isVersionBelow(version: number, fence: number): boolean {
  return version < (fence + 1) * OF_CLAIM;
}
