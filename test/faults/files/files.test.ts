import { describeSchedules, openGround } from '../describe-schedules.ts';
import { filesPart } from './part.ts';

/** Disks and stores that speak S3, with many faults: quick seeds of the first 150. */
const SEEDS = [3, 6, 21, 22, 62, 109];

describeSchedules('leave files as they promise', {
  part: filesPart,
  seeds: SEEDS,
  ground: openGround(),
  operations: 30,
});
