// What the hooks cost by count of instructions: decodes the same rows on the prebuilt CPU libraries without an eval
// callback, and with the product's own hook code in five states. Run under callgrind, which counts inside
// `measuredSteps` alone; times would not show half a percent.
//
// usage: hook-cost MODEL.gguf LIBRARIES_DIR STREAMS STEPS none|idle|steered|senses-8|senses-top-16
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "eval_hook.h"
#include "ggml-backend.h"
#include "job.h"
#include "llama.h"
#include "step_events.h"
#include "thread_pool.h"

namespace {

using namespace steerage;

/// Short, because callgrind steps through its rows too; a longer one would only make the hooks a smaller part.
constexpr int kPromptTokens = 2;
constexpr int kBatchTokens = 512;
constexpr int kFeatures = 512;
/// Tokens below are single bytes.
constexpr int kFirstWord = 256;

std::shared_ptr<const SaeEncoder> makeSae(int width) {
  SaeWeights weights;
  weights.embeddingWidth = width;
  weights.featureCount = kFeatures;
  weights.encoderColumns.resize(static_cast<size_t>(width) * kFeatures);
  for (size_t i = 0; i < weights.encoderColumns.size(); i++) {
    weights.encoderColumns[i] = std::sin(static_cast<float>(i));
  }
  weights.encoderBias.resize(kFeatures);
  weights.decoderBias.resize(static_cast<size_t>(width));
  return std::make_shared<const SaeEncoder>(std::move(weights));
}

HookPlan planOf(const std::string& state, int width, int layer) {
  if (state == "steered") {
    ResidualEdit edit;
    edit.layer = layer;
    edit.vector.assign(static_cast<size_t>(width), 0.01f);
    return HookPlan({edit}, {}, {});
  }
  if (state == "senses-8" || state == "senses-top-16") {
    SensingPlan sensing;
    sensing.sae = makeSae(width);
    sensing.layer = layer;
    sensing.subset = state == "senses-8";
    if (sensing.subset) {
      for (int i = 0; i < 8; i++) sensing.features.push_back(i * 61);
    } else {
      sensing.topK = 16;
    }
    return HookPlan({}, {sensing}, {});
  }
  return HookPlan();
}

llama_token mostLikely(const float* logits, int count) {
  int best = 0;
  for (int i = 1; i < count; i++) {
    if (logits[i] > logits[best]) best = i;
  }
  return best;
}

struct Bench {
  llama_context* context = nullptr;
  int vocabularySize = 0;
  /// Null where the context has no callback.
  EvalHook* hook = nullptr;
  BatchBuilder batch{kBatchTokens};
  std::vector<std::unique_ptr<Job>> jobs;
  std::vector<llama_token> last;
};

bool decode(Bench& bench) {
  if (bench.hook != nullptr) bench.hook->begin(bench.batch);
  if (llama_decode(bench.context, bench.batch.batch()) != 0) return false;
  if (bench.hook == nullptr) return true;
  bench.hook->finish();
  StepEvents events;
  bench.hook->hooks().commit(events);
  return !bench.hook->check().violated();
}

bool prefill(Bench& bench) {
  for (size_t stream = 0; stream < bench.jobs.size(); stream++) {
    bench.batch.clear();
    for (int i = 0; i < kPromptTokens; i++) {
      const auto token = static_cast<int32_t>(kFirstWord + (i * 37 + static_cast<int>(stream) * 11) % 512);
      const bool output = i == kPromptTokens - 1;
      bench.batch.add({token, i, static_cast<int32_t>(stream), output, output, bench.jobs[stream].get()});
    }
    if (!decode(bench)) return false;
    bench.last.push_back(mostLikely(llama_get_logits_ith(bench.context, kPromptTokens - 1), bench.vocabularySize));
  }
  return true;
}

}  // namespace

// The name that callgrind is told.
extern "C" __attribute__((noinline)) bool measuredSteps(void* data, int steps) {
  auto& bench = *static_cast<Bench*>(data);
  for (int step = 0; step < steps; step++) {
    bench.batch.clear();
    for (size_t stream = 0; stream < bench.jobs.size(); stream++) {
      bench.batch.add({bench.last[stream], kPromptTokens + step, static_cast<int32_t>(stream), true, true,
                       bench.jobs[stream].get()});
    }
    if (!decode(bench)) return false;
    for (size_t stream = 0; stream < bench.jobs.size(); stream++) {
      const float* logits = llama_get_logits_ith(bench.context, static_cast<int32_t>(stream));
      bench.last[stream] = mostLikely(logits, bench.vocabularySize);
    }
  }
  return true;
}

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: hook-cost MODEL.gguf LIBRARIES_DIR STREAMS STEPS STATE\n");
    return 2;
  }
  const int streams = std::atoi(argv[3]);
  const int steps = std::atoi(argv[4]);
  const std::string state = argv[5];
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all_from_path(argv[2]);
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) return 1;
  const int width = llama_model_n_embd(model);
  const int layers = llama_model_n_layer(model);
  // As the engine has short windows on a processor: the layout in which there is more to prove.
  EvalHook hook(layers, width, streams > 1 ? streams : 0);
  Bench bench;
  bench.vocabularySize = llama_vocab_n_tokens(llama_model_get_vocab(model));

  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>((kPromptTokens + steps + 8) * streams);
  params.n_batch = params.n_ubatch = kBatchTokens;
  params.n_seq_max = static_cast<uint32_t>(streams);
  params.n_threads = params.n_threads_batch = 1;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  params.kv_unified = false;
  params.no_perf = true;
  if (state != "none") {
    bench.hook = &hook;
    params.cb_eval = EvalHook::callback;
    params.cb_eval_user_data = &hook;
  }
  bench.context = llama_init_from_model(model, params);
  if (bench.context == nullptr) return 1;
  const ThreadPool pool(1);
  pool.attachTo(bench.context);

  const HookPlan plan = planOf(state, width, layers / 2);
  for (int stream = 0; stream < streams; stream++) {
    JobOptions options;
    options.jobId = stream + 1;
    options.sequenceId = stream;
    options.tokens.resize(kPromptTokens);
    bench.jobs.push_back(std::make_unique<Job>(std::move(options), plan));
  }
  if (!prefill(bench) || !measuredSteps(&bench, steps)) {
    std::fprintf(stderr, "a step failed: %s\n", hook.check().violation().c_str());
    return 1;
  }
  // How often the hook worked, and the last tokens: whether a state really did what its name says.
  std::printf("%llu", static_cast<unsigned long long>(hook.hookCalls()));
  for (const llama_token token : bench.last) std::printf(" %d", token);
  std::printf("\n");
  std::fflush(stdout);
  std::_Exit(0);
}
