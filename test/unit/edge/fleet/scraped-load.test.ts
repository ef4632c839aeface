import { describe, expect, it } from "vitest";
import { scrapedLoad } from "../../../../edge/fleet/scraped-load.ts";

describe("a metrics page", () => {
  it.each([
    ["", "vllm:num_requests_running 3.0\nvllm:num_requests_waiting 1\nvllm:gpu_cache_usage_perc 0.5"],
    ["vllm", "vllm:num_requests_running 3.0\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc 0.5"],
    ["sglang", "sglang:num_running_reqs 3\nsglang:num_queue_reqs 1\nsglang:token_usage 0.5"],
    ["llamacpp", "llamacpp:requests_processing 3\nllamacpp:requests_deferred 1\nllamacpp:kv_cache_usage_ratio 0.5"],
  ] as const)("is read by the names of engine '%s'", (engine, text) => {
    expect(scrapedLoad(`# TYPE x gauge\n${text}\nother 7\n`, engine, "m")).toEqual({
      inFlight: 4,
      waiting: 1,
      kvUse: 0.5,
    });
  });

  it("counts this model's samples where models are named, and all where it is not among them", () => {
    const text = [
      'vllm:num_requests_running{engine="0",model_name="m"} 2',
      'vllm:num_requests_running{engine="1",model_name="m"} 1',
      'vllm:num_requests_running{model_name="other"} 5',
    ].join("\n");
    expect(scrapedLoad(text, "", "m")?.inFlight).toBe(3);
    expect(scrapedLoad(text, "", "alias")?.inFlight).toBe(8);
    expect(scrapedLoad(text, "", "m")?.kvUse).toBeNull();
  });

  it("tells nothing under other names, and no number is none", () => {
    expect(scrapedLoad("up 1\n", "", "m")).toBeNull();
    expect(scrapedLoad("<html>nothing here</html>", "", "m")).toBeNull();
    expect(scrapedLoad("vllm:num_requests_running NaN\n", "", "m")).toBeNull();
    expect(scrapedLoad("vllm:num_requests_running -3\n", "", "m")?.inFlight).toBe(0);
  });
});
