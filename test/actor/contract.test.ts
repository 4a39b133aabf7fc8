import { actorContract } from './contract.ts';
import { openScene } from './scene.ts';

actorContract(async (definitions) => (await openScene(definitions)).actors);
