/**
 * Versions of the head of a key. They rise with each change, and none ever comes again, though the head may be removed and made anew: those that
 * a claim begins with are far above those of the claim before.
 */
import { placeOf, sequenceOf } from './place.ts';

/** A claim changes the head of a key fewer times than that. */
const OF_CLAIM = 1024;
/** Versions of a head that no claim has changed yet, by the number of the piece of its first job: below 0, so that no claim has them. */
const UNTAKEN = 2 ** 15;

/** The version after a change by which a claim takes the key, or answers for it. */
export function versionTaken(version: number, token: number): number {
  return Math.max(version + 1, token * OF_CLAIM);
}

/** After any other change. @param version  undefined: there is no head, and it is made for this job of the key */
export function versionFor(version: number | undefined, job: number): number {
  return version === undefined ? -sequenceOf(placeOf(job).piece) * UNTAKEN : version + 1;
}

/** Whether the claim after this fence begins with a greater version. */
export function isVersionBelow(version: number, fence: number): boolean {
  return version < (fence + 1) * OF_CLAIM;
}
