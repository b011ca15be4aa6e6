/**
 * A new answer in place of the old one: every part that is equal stays the old object, so that what
 * has not changed is not drawn again.
 */
export function kept<T>(old: unknown, now: T): T {
  if (Object.is(old, now)) return now;
  if (Array.isArray(old) && Array.isArray(now)) {
    const items: unknown[] = now.map((one, n) => kept(old[n], one));
    return (items.length === old.length && items.every((one, n) => one === old[n]) ? old : items) as T;
  }
  if (!isPlain(old) || !isPlain(now)) return now;
  const names = Object.keys(now);
  const parts = Object.fromEntries(names.map((name) => [name, kept(old[name], now[name])]));
  const equal = names.length === Object.keys(old).length && names.every((name) => name in old && parts[name] === old[name]);
  return (equal ? old : parts) as T;
}

const isPlain = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null && !Array.isArray(value);
