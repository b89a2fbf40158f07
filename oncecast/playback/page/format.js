// Reads a packed recording. oncecast/playback/packing.py describes the format.

const HEADER_LENGTH_BYTES = 4;

/** Return the recording that base64 text holds: its header, and its columns as arrays. */
export async function decode(text) {
  const packed = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const bytes = await inflated(packed);
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const end = HEADER_LENGTH_BYTES + length;
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(HEADER_LENGTH_BYTES, end)));
  if (header.format !== 1) throw new Error(`recording format ${header.format} is unknown`);
  const columns = {};
  for (const [name, place] of Object.entries(header.columns)) {
    columns[name] = column(bytes, end, place);
  }
  return { header, columns };
}

async function inflated(packed) {
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Decode a column. Large numbers do not fit into bit operations, so groups are multiplied. */
function column(bytes, base, [offset, , count, delta]) {
  const numbers = new Float64Array(count);
  let at = base + offset;
  let before = 0;
  for (let index = 0; index < count; index++) {
    let value = 0;
    let factor = 1;
    let group;
    do {
      group = bytes[at++];
      value += (group & 0x7f) * factor;
      factor *= 128;
    } while (group > 0x7f);
    const number = value % 2 ? -(value + 1) / 2 : value / 2;
    before = delta ? before + number : number;
    numbers[index] = before;
  }
  return numbers;
}
