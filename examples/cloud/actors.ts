import { type ActorDefinition, actor, type LooseFields } from 'pawl/actor';
import type { Provider } from './provider.ts';

export type Cloud = {
  readonly Formation: ActorDefinition<LooseFields, 'addNode' | 'destroy'>;
  readonly Server: ActorDefinition<LooseFields, 'configure' | 'destroy'>;
  readonly Image: ActorDefinition<LooseFields, 'destroy'>;
  readonly Timeline: ActorDefinition<LooseFields, 'rotate' | 'destroy'>;
  readonly Role: ActorDefinition<LooseFields, 'destroy'>;
};

/** The control plane: what there is, in which states it can be, and what to do in each. */
export function cloud(provider: Provider): Cloud {
  const Image = actor('image', {
    semaphores: ['destroy'],
    initial: 'building',
    always: { destroy: 'destroying' },
    states: (state) => ({
      building: state({
        to: ['ready'],
        run: async (a) =>
          a.to('ready', { build: await a.once('build', a.fields['name'], (key) => `build-${key.slice(0, 8)}`) }),
      }),
      ready: state({ run: (a) => a.hibernate() }),
      destroying: state({ run: (a) => a.done() }),
    }),
  });

  const Timeline = actor('timeline', {
    semaphores: ['rotate', 'destroy'],
    initial: 'writing',
    always: { destroy: 'archiving' },
    states: (state) => ({
      writing: state({
        // However many servers were healed meanwhile: their number is what was raised.
        run: (a) => {
          const generation = a.fields['generation'] + a.val('rotate');
          a.decr('rotate');
          return a.hibernate({ generation });
        },
      }),
      archiving: state({ run: (a) => a.done({ generation: a.fields['generation'] }) }),
    }),
  });

  const Role = actor('role', {
    semaphores: ['destroy'],
    initial: 'granting',
    always: { destroy: 'revoking' },
    states: (state) => ({
      granting: state({ to: ['granted'], run: (a) => a.to('granted', { secret: a.key('secret') }) }),
      granted: state({ run: (a) => a.hibernate() }),
      revoking: state({ run: (a) => a.done() }),
    }),
  });

  const Server = actor('server', {
    semaphores: ['configure', 'destroy'],
    initial: 'creating',
    always: { destroy: 'destroying' },
    backoff: { min: '100ms', max: '5s' },
    states: (state) => ({
      creating: state({
        to: ['waitRunning'],
        timeout: '30s',
        // The key is the same for every try of this visit: a crash right after this line does not cost a second instance.
        run: async (a) => {
          const instance = await provider.create(a.key('instance'), a.signal);
          return a.to('waitRunning', { instance });
        },
      }),
      waitRunning: state({
        to: ['configuring'],
        every: '100ms',
        deadline: '1m',
        run: async (a) => {
          const { pid } = await provider.health(a.fields['instance'], a.signal);
          return pid === a.fields['instance'].pid ? a.to('configuring') : a.stay();
        },
      }),
      configuring: state({
        to: ['running', 'stopping'],
        run: async (a) => {
          a.decr('configure');
          const config = { formation: a.parent, server: a.id, round: a.fields['configured'] + 1 };
          const answered = await provider.configure(a.fields['instance'], config, a.signal).catch(() => undefined);
          if (answered === undefined) return a.to('stopping');
          a.resolve(`server:${a.id}`);
          return a.to('running', { configured: a.fields['configured'] + 1 });
        },
      }),
      running: state({
        to: ['configuring', 'stopping'],
        every: '250ms',
        run: async (a) => {
          if (a.pos('configure')) return a.to('configuring');
          const health = await provider.health(a.fields['instance'], a.signal).catch(() => undefined);
          if (health?.pid === a.fields['instance'].pid) return a.stay();
          a.page({
            tag: `server:${a.id}`,
            summary: `server ${a.id} does not answer`,
            severity: 'error',
            root: `formation:${a.parent}`,
          });
          return a.to('stopping');
        },
      }),
      stopping: state({
        to: ['starting'],
        run: async (a) => {
          await provider.destroy(a.fields['instance'].pid);
          return a.to('starting');
        },
      }),
      starting: state({
        to: ['waitRunning'],
        timeout: '30s',
        run: async (a) => {
          const instance = await provider.create(a.key('instance'), a.signal);
          a.incr(a.fields['timeline'], 'rotate');
          return a.to('waitRunning', { instance, healed: a.fields['healed'] + 1 });
        },
      }),
      destroying: state({
        run: async (a) => {
          if (a.fields['instance'] !== undefined) await provider.destroy(a.fields['instance'].pid);
          return a.done();
        },
      }),
    }),
  });

  const Formation = actor('formation', {
    semaphores: ['addNode', 'destroy'],
    initial: 'creating',
    always: { destroy: 'destroying' },
    states: (state) => ({
      creating: state({
        to: ['waitServers'],
        run: async (a) => {
          const image = await a.create(Image, { name: 'base' });
          const role = await a.create(Role, { name: 'app' });
          const timeline = await a.create(Timeline, { generation: 1 });
          const servers: string[] = [];
          for (let n = 0; n < a.fields['size']; n += 1)
            servers.push((await a.create(Server, newServer(timeline.id))).id);
          return a.to('waitServers', { image: image.id, role: role.id, timeline: timeline.id, servers });
        },
      }),
      waitServers: state({
        to: ['running'],
        every: '200ms',
        deadline: '2m',
        run: async (a) => {
          const servers = (await a.children()).filter(({ type }) => type === 'server');
          return servers.every((server) => server.state === 'running') ? a.to('running') : a.stay();
        },
      }),
      running: state({
        to: ['waitServers'],
        run: async (a) => {
          const wanted = a.val('addNode');
          if (wanted === 0) return a.hibernate();
          a.decr('addNode');
          // However many were asked for at once, the servers there are learn of all in one round.
          for (const id of a.fields['servers']) a.incr(id, 'configure');
          const servers = [...a.fields['servers']];
          for (let n = 0; n < wanted; n += 1)
            servers.push((await a.create(Server, newServer(a.fields['timeline']))).id);
          return a.to('waitServers', { servers, rounds: a.fields['rounds'] + 1 });
        },
      }),
      destroying: state({
        // Woken when the last child is final.
        run: async (a) =>
          (await a.incrChildren()) > 0 ? a.hibernate() : a.done({ servers: a.fields['servers'].length }),
      }),
    }),
  });

  return { Formation, Server, Image, Timeline, Role };
}

function newServer(timeline: string): LooseFields {
  return { healed: 0, configured: 0, timeline };
}
