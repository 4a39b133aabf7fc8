import type { Create, Update } from './payload.ts';

/** What the front end answered to a request that it took. */
export interface Acceptance {
  readonly job: string;
  readonly duplicate: boolean;
}

/** Speaks to a front end over HTTP, as anybody would. */
export class Client {
  readonly #url: string;
  readonly #token: string;

  constructor(url: string, token: string) {
    this.#url = url;
    this.#token = token;
  }

  /** @throws Error  it was not taken */
  create(id: string, body: Create): Promise<Acceptance> {
    return this.#post('/spreadsheets', 'application/json', JSON.stringify({ id, ...body }));
  }

  /** @throws Error  it was not taken */
  createFromCsv(id: string, csv: string): Promise<Acceptance> {
    return this.#post(`/spreadsheets?id=${id}`, 'text/csv', csv);
  }

  /** @throws Error  it was not taken */
  update(id: string, body: Partial<Update>): Promise<Acceptance> {
    return this.#post(`/spreadsheets/${id}/updates`, 'application/json', JSON.stringify(body));
  }

  /** The file's bytes. @throws Error  there is none */
  async download(id: string): Promise<Buffer> {
    const response = await this.#fetch(`/spreadsheets/${id}/file`, {});
    return Buffer.from(await response.arrayBuffer());
  }

  async #post(path: string, type: string, body: string): Promise<Acceptance> {
    const response = await this.#fetch(path, { method: 'POST', headers: { 'content-type': type }, body });
    const answer: unknown = await response.json();
    if (!isAccepted(answer)) throw new Error(`POST ${path} was answered without a job: ${JSON.stringify(answer)}`);
    return { job: answer.job, duplicate: response.status === 200 };
  }

  async #fetch(path: string, init: RequestInit): Promise<Response> {
    const headers = new Headers(init.headers);
    headers.set('authorization', `Bearer ${this.#token}`);
    const response = await fetch(new URL(path, this.#url), { ...init, headers });
    if (response.ok) return response;
    throw new Error(`${init.method ?? 'GET'} ${path} was answered with ${response.status}: ${await response.text()}`);
  }
}

function isAccepted(answer: unknown): answer is { job: string } {
  return typeof answer === 'object' && answer !== null && 'job' in answer && typeof answer.job === 'string';
}
