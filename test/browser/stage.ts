import type { Browser, BrowserContextOptions } from 'playwright-core';
import { type PostgresEngine, postgres } from '../../src/engine/postgres/index.ts';
import { createHttp, type HttpOptions, serve } from '../../src/http/index.ts';
import { freshDatabase } from '../support/database.ts';
import { launch, type Visit, watch } from './scene.ts';

/** An empty database and a browser: for tests that bring what they look at. */
export interface Stage {
  readonly engine: PostgresEngine;
  /** Of the database. */
  readonly url: string;
  /** A dashboard with these options, for a user with the token. @returns its address */
  readonly open: (options?: HttpOptions) => Promise<string>;
  /** With the token, unless the options of the browser say otherwise. */
  readonly visit: (url: string, options?: BrowserContextOptions) => Promise<Visit>;
  readonly stop: () => Promise<void>;
}

export const TOKEN = 'a-token-of-the-stage-that-is-long-enough';
const WITH_TOKEN = { authorization: `Bearer ${TOKEN}` };

export async function makeStage(): Promise<Stage> {
  const { url } = await freshDatabase();
  const engine = postgres(url, { max: 10 });
  const browser: Browser = await launch();
  const closers: (() => Promise<unknown>)[] = [];
  return {
    engine,
    url,
    open: async (options = {}) => {
      const auth = { tokens: [{ name: 'ada', token: TOKEN, role: 'admin' as const }] };
      const rate = { burst: 10_000, perSecond: 1000 };
      const served = await serve(createHttp(engine, { live: '500ms', rate, auth, ...options }));
      closers.push(() => served.stop());
      return served.url;
    },
    visit: async (at, options = {}) => {
      const context = await browser.newContext({ extraHTTPHeaders: WITH_TOKEN, ...options });
      const visit = watch(context, await context.newPage());
      await visit.page.goto(at);
      return visit;
    },
    stop: async () => {
      await browser.close();
      for (const close of closers.reverse()) await close();
      await engine.stop();
    },
  };
}
