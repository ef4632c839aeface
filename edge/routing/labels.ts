export type Labels = Readonly<Record<string, string>>;

/** Whether a machine carries every label that is asked for, with its value. */
export function carries(labels: Labels, selector: Labels): boolean {
  return Object.entries(selector).every(([name, value]) => Object.hasOwn(labels, name) && labels[name] === value);
}
