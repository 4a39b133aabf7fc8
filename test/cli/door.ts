import type { Running } from './pawl.ts';

const ADDRESS = /(http:\/\/\S+\/)\?token=([\w-]+)/;

/** The way in that a server has printed: where it is, and what to show there. */
export interface Door {
  readonly url: string;
  readonly base: string;
  readonly headers: Readonly<Record<'authorization', string>>;
}

export async function doorOf(server: Running): Promise<Door> {
  await server.said(ADDRESS);
  const [url = '', base = '', token = ''] = ADDRESS.exec(server.stderr()) ?? [];
  return { url, base, headers: { authorization: `Bearer ${token}` } };
}
