/** A folder, as a client has it: texts and other bytes by their paths. */
export type Folder = ReadonlyMap<string, Buffer>;

/** A folder as one document: the lengths of its files as JSON, a line end, and the files one after another. */
export function pack(folder: Folder): Buffer {
  const files = [...folder].map(([path, bytes]) => [path, bytes.length]);
  return Buffer.concat([Buffer.from(`${JSON.stringify(files)}\n`), ...folder.values()]);
}

/** @throws Error  it is no whole document */
export function unpack(document: Buffer): Folder {
  const end = document.indexOf('\n');
  const index: unknown = JSON.parse(document.toString('utf8', 0, end));
  if (!Array.isArray(index)) throw new Error('a document begins with a list of its files');
  let at = end + 1;
  const folder = new Map<string, Buffer>();
  for (const [path, length] of index) {
    folder.set(String(path), document.subarray(at, at + Number(length)));
    at += Number(length);
  }
  if (at !== document.length)
    throw new Error(`the files of a document have ${at} bytes, and it has ${document.length}`);
  return folder;
}

/** The lines of the log that every push adds one to. */
export function readLog(folder: Folder): string[] {
  const text = folder.get('log.txt')?.toString() ?? '';
  return text.split('\n').filter((line) => line !== '');
}
