import { describe, expect, it } from "vitest";
import { scriptOf, simScriptSchema } from "../../../../backend/sim/script.ts";
import { ApiError } from "../../../../shared/errors/api-error.ts";

const BASE = simScriptSchema.parse({ ttft_ms: 5, output_tokens: 7 });
const given = (over: Partial<Parameters<typeof scriptOf>[1]>) =>
  scriptOf(BASE, { modelSuffix: "", header: "", member: undefined, ...over });

describe("the script of a request", () => {
  it("is the engine's when the request says nothing", () => {
    expect(given({})).toEqual(BASE);
  });

  it("is changed by model name, header and body, the later over the earlier", () => {
    const script = given({
      modelSuffix: "ttft_ms=1,hang",
      header: "ttft_ms=2, cut_after=3",
      member: { ttft_ms: 3 },
    });
    expect(script).toEqual({ ...BASE, ttft_ms: 3, cut_after: 3, hang: true });
  });

  it("can take a fault back", () => {
    const faulty = simScriptSchema.parse({ status: 503 });
    expect(scriptOf(faulty, { modelSuffix: "", header: "", member: { status: null } }).status).toBeNull();
  });

  it.each([{ header: "ttft_ms=fast" }, { header: "unknown=1" }, { member: { fail_rate: 2 } }, { member: 7 }])(
    "refuses %j",
    (over) => {
      expect(() => given(over)).toThrow(ApiError);
    },
  );
});
