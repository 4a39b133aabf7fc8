/**
 * Whether node-postgres can read a URL. That of a socket may leave out its host: `postgres://user:password@/app?host=/run`. For
 * JavaScript alone, a user without a host is no URL.
 */
export function isReadableUrl(url: string): boolean {
  return URL.canParse(url) || URL.canParse(url.replace('@/', '@socket/'));
}
