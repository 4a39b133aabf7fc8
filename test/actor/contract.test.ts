import type { Actors } from '../../src/actor/index.ts';
import { actorContract } from './contract.ts';
import { openScene } from './scene.ts';

const urls = new WeakMap<Actors, string>();

actorContract(async (definitions, other) => {
  const url = other && urls.get(other);
  const scene = await openScene(definitions, url === undefined ? {} : { url });
  urls.set(scene.actors, scene.url);
  return scene.actors;
});
