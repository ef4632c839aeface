import { crc32, deflateRawSync } from "node:zlib";

export interface FixtureArray {
  readonly shape: readonly number[];
  readonly values: readonly number[];
  /** NumPy's descriptor; `<f4` when not given. */
  readonly descriptor?: string;
  readonly fortranOrder?: boolean;
}

/** One array in NumPy's format, version 1. */
export function npyBytes({ shape, values, descriptor = "<f4", fortranOrder = false }: FixtureArray): Buffer {
  const sides = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
  const literal = `{'descr': '${descriptor}', 'fortran_order': ${fortranOrder ? "True" : "False"}, 'shape': (${sides}), }`;
  // The whole header is a multiple of 64 bytes and ends with a line feed.
  const padded = `${literal.padEnd(Math.ceil((literal.length + 11) / 64) * 64 - 11)}\n`;
  const length = Buffer.alloc(2);
  length.writeUInt16LE(padded.length);
  const data = Buffer.from(Float32Array.from(values).buffer);
  return Buffer.concat([Buffer.from("\x93NUMPY\x01\x00", "latin1"), length, Buffer.from(padded, "latin1"), data]);
}

/** A zip file; odd entries are deflated and even ones stored, so that both are read. */
export function zipBytes(entries: Readonly<Record<string, Buffer>>): Buffer {
  const locals: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  Object.entries(entries).forEach(([name, content], place) => {
    const method = place % 2 === 0 ? 0 : 8;
    const data = method === 0 ? content : deflateRawSync(content);
    const fields = Buffer.alloc(26);
    fields.writeUInt16LE(20, 0);
    fields.writeUInt16LE(method, 4);
    fields.writeUInt32LE(crc32(content), 10);
    fields.writeUInt32LE(data.length, 14);
    fields.writeUInt32LE(content.length, 18);
    fields.writeUInt16LE(name.length, 22);
    const local = Buffer.concat([Buffer.from("PK\x03\x04"), fields, Buffer.from(name), data]);
    const tail = Buffer.alloc(14);
    tail.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from("PK\x01\x02\x14\x00"), fields, tail, Buffer.from(name)]));
    locals.push(local);
    offset += local.length;
  });
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06", "latin1");
  end.writeUInt16LE(directory.length, 8);
  end.writeUInt16LE(directory.length, 10);
  end.writeUInt32LE(Buffer.concat(directory).length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...locals, ...directory, end]);
}

/** An .npz file as NumPy's savez writes it. */
export function npzBytes(arrays: Readonly<Record<string, FixtureArray>>): Buffer {
  return zipBytes(Object.fromEntries(Object.entries(arrays).map(([name, array]) => [`${name}.npy`, npyBytes(array)])));
}
