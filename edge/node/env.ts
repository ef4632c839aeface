/** The environment, read here and nowhere else in the edge on Node. */
export const environment: Readonly<Record<string, string | undefined>> = Object.freeze({ ...process.env });
