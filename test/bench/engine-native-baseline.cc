// The yardstick of engine-native.ts: the least a native batching loop can do. It decodes N streams over one unified
// cache on the prebuilt CPU libraries, samples with llama.cpp's chain and throws the text away; it has no inbox, no
// events, no hooks and no checks. Prints tokens per second of the median round and CPU microseconds per token.
//
// usage: baseline MODEL.gguf LIBRARIES_DIR STREAMS THREADS TOKENS_PER_STREAM ROUNDS
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {

constexpr int kBatchTokens = 512;
constexpr int kCellsPerStream = 512;

struct Stream {
  llama_sampler* sampler = nullptr;
  llama_token last = -1;
  int made = 0;
};

llama_sampler* makeSampler(uint32_t seed) {
  llama_sampler* chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
  for (llama_sampler* part : {llama_sampler_init_top_k(40), llama_sampler_init_top_p(0.95f, 1),
                              llama_sampler_init_temp(0.8f), llama_sampler_init_dist(seed)}) {
    llama_sampler_chain_add(chain, part);
  }
  return chain;
}

void attachPool(llama_context* context, int threads) {
  const auto registry = ggml_backend_dev_backend_reg(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
  const auto create = reinterpret_cast<ggml_threadpool* (*)(ggml_threadpool_params*)>(
      ggml_backend_reg_get_proc_address(registry, "ggml_threadpool_new"));
  ggml_threadpool_params params;
  std::memset(&params, 0, sizeof params);
  params.n_threads = threads;
  params.poll = 50;
  llama_attach_threadpool(context, create(&params), nullptr);
}

struct Rows {
  llama_batch batch = llama_batch_init(kBatchTokens, 0, 1);
  int add(llama_token token, int position, int sequence, bool output) {
    const int place = batch.n_tokens++;
    batch.token[place] = token;
    batch.pos[place] = position;
    batch.n_seq_id[place] = 1;
    batch.seq_id[place][0] = sequence;
    batch.logits[place] = output;
    return place;
  }
};

void sample(llama_context* context, const llama_vocab* vocab, Stream& stream, int row) {
  char text[128];
  stream.last = llama_sampler_sample(stream.sampler, context, row);
  llama_token_to_piece(vocab, stream.last, text, sizeof text, 0, true);
  stream.made++;
}

bool decode(llama_context* context, Rows& rows) {
  const bool fine = llama_decode(context, rows.batch) == 0;
  if (!fine) std::fprintf(stderr, "llama_decode failed\n");
  return fine;
}

double cpuSeconds() {
  rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + time.tv_usec * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Seconds for all streams from prompt to last token, or a negative number.
double round(llama_context* context, const llama_vocab* vocab, const std::vector<llama_token>& prompt, int streamCount,
             int tokensPerStream) {
  llama_memory_clear(llama_get_memory(context), true);
  std::vector<Stream> streams(static_cast<size_t>(streamCount));
  for (int s = 0; s < streamCount; s++) streams[static_cast<size_t>(s)].sampler = makeSampler(static_cast<uint32_t>(s));
  Rows rows;
  std::vector<int> rowOf(streams.size());
  const auto length = static_cast<int>(prompt.size());
  const auto start = std::chrono::steady_clock::now();

  int prefilled = 0;
  while (true) {
    rows.batch.n_tokens = 0;
    std::fill(rowOf.begin(), rowOf.end(), -1);
    for (int s = 0; s < prefilled; s++) {
      Stream& stream = streams[static_cast<size_t>(s)];
      if (stream.made == tokensPerStream) continue;
      rowOf[static_cast<size_t>(s)] = rows.add(stream.last, length + stream.made - 1, s, true);
    }
    while (prefilled < streamCount && rows.batch.n_tokens + length <= kBatchTokens) {
      for (int i = 0; i < length; i++) {
        const int row = rows.add(prompt[static_cast<size_t>(i)], i, prefilled, i == length - 1);
        if (i == length - 1) rowOf[static_cast<size_t>(prefilled)] = row;
      }
      prefilled++;
    }
    if (rows.batch.n_tokens == 0) break;
    if (!decode(context, rows)) return -1.0;
    for (size_t s = 0; s < streams.size(); s++) {
      if (rowOf[s] >= 0) sample(context, vocab, streams[s], rowOf[s]);
    }
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  for (Stream& stream : streams) llama_sampler_free(stream.sampler);
  llama_batch_free(rows.batch);
  return elapsed.count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fprintf(stderr, "usage: baseline MODEL.gguf LIBRARIES_DIR STREAMS THREADS TOKENS_PER_STREAM ROUNDS\n");
    return 1;
  }
  const int streams = std::atoi(argv[3]);
  const int threads = std::atoi(argv[4]);
  const int tokensPerStream = std::atoi(argv[5]);
  const int rounds = std::atoi(argv[6]);
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_backend_load_all_from_path(argv[2]);
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) return 1;
  const llama_vocab* vocab = llama_model_get_vocab(model);
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(kCellsPerStream * streams);
  params.n_batch = params.n_ubatch = kBatchTokens;
  params.n_seq_max = static_cast<uint32_t>(streams);
  params.n_threads = params.n_threads_batch = threads;
  params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
  params.kv_unified = true;
  params.no_perf = true;
  llama_context* context = llama_init_from_model(model, params);
  attachPool(context, threads);

  std::string text;
  for (int i = 0; i < 5; i++) text += "Once upon a time there was a sailor on the beach. ";
  std::vector<llama_token> prompt(text.size());
  prompt.resize(static_cast<size_t>(llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), prompt.data(),
                                                   static_cast<int32_t>(prompt.size()), true, true)));
  std::vector<double> rates;
  round(context, vocab, prompt, streams, tokensPerStream);
  const double cpuBefore = cpuSeconds();
  for (int i = 0; i < rounds; i++) {
    const double seconds = round(context, vocab, prompt, streams, tokensPerStream);
    if (seconds <= 0.0) return 1;
    rates.push_back(streams * tokensPerStream / seconds);
  }
  const double cpuPerToken = (cpuSeconds() - cpuBefore) * 1e6 / (static_cast<double>(rounds) * streams * tokensPerStream);
  std::sort(rates.begin(), rates.end());
  std::printf("%.1f %.2f\n", rates[rates.size() / 2], cpuPerToken);
  // Threads of the pool are still about: leave without tearing the libraries down under them.
  std::fflush(stdout);
  std::_Exit(0);
}
