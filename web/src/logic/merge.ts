/** A list that is shown, and its first page looked at again. */
export function merged<T extends { id: string }>(shown: T[], waiting: T[], page: T[], whole: boolean): { items: T[]; waiting: T[] } {
  const fresh = new Map(page.map((one) => [one.id, one]));
  const known = new Set(shown.map((one) => one.id));
  // what the page should have held and does not, does not fit the filter any more
  const last = page.at(-1)?.id;
  const covered = (id: string): boolean => whole || (last !== undefined && id >= last);
  const items = shown.filter((one) => fresh.has(one.id) || !covered(one.id)).map((one) => fresh.get(one.id) ?? one);
  const isNew = (one: T): boolean => !known.has(one.id);
  const more = page.filter(isNew);
  const ids = new Set(more.map((one) => one.id));
  return { items, waiting: [...more, ...waiting.filter((one) => !ids.has(one.id) && !covered(one.id))] };
}
