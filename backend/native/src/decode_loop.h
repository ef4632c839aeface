// The continuous-batching loop over one llama.cpp context, and the thread that runs it. Each step carries one row of
// every running answer and prompt chunks within the prefill budget, so running streams never wait for a long prompt. Other threads reach it only through the inbox; everything else belongs to the decode thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "batch_builder.h"
#include "context_settings.h"
#include "eval_hook.h"
#include "hook_probe.h"
#include "job.h"
#include "model_handle.h"
#include "prefill_budget.h"
#include "sampler_chain.h"
#include "speculation.h"
#include "step_events.h"
#include "thread_pool.h"

namespace steerage {

struct LoopCounters {
  std::atomic<uint64_t> steps{0};
  std::atomic<uint64_t> promptTokens{0};
  std::atomic<uint64_t> completionTokens{0};
  std::atomic<uint64_t> ownershipChecks{0};
  std::atomic<uint64_t> hookCalls{0};
  /// Rows of drafts that the main model computed, and those of them that became part of an answer.
  std::atomic<uint64_t> draftedTokens{0};
  std::atomic<uint64_t> acceptedTokens{0};
  /// Tokens that a draft model computed: prompts, answers and guesses.
  std::atomic<uint64_t> draftModelTokens{0};
};

class DecodeLoop {
 public:
  using EventSink = std::function<void(std::unique_ptr<StepEvents>)>;

  /// Opens the context and probes its hook points. Blocking; throws `context_failed`, `out_of_memory`.
  DecodeLoop(std::shared_ptr<ModelHandle> model, const ContextSettings& settings);
  ~DecodeLoop();
  DecodeLoop(const DecodeLoop&) = delete;
  DecodeLoop& operator=(const DecodeLoop&) = delete;

  /// Starts the thread. `sink` is called on it, once per step that had events.
  void start(EventSink sink);
  /// Takes a job. Throws `invalid_argument`, `disposed`, `grammar_invalid`.
  void submit(std::unique_ptr<Job> job);
  void cancel(int jobId);
  void clearSequence(int sequenceId);
  /// Ends what runs as cancelled, joins the thread, frees the context and lets go of the model. Idempotent; any thread
  /// but the decode thread. Afterwards only counters() and hookSupport() may be asked.
  void stop();
  /// The same when nobody can be told any more: the environment or the process is going down.
  void stopSilently();

  const ModelHandle& model() const { return *model_; }
  const ContextSettings& settings() const { return settings_; }
  const HookSupport& hookSupport() const { return support_; }
  const LoopCounters& counters() const { return counters_; }

 private:
  struct Command {
    enum class Kind { Submit, Cancel, Clear } kind;
    int id = 0;
    std::unique_ptr<Job> job;
  };

  void run();
  bool waitForWork(std::vector<Command>& commands);
  void obey(Command& command, StepEvents& events);
  void admit(std::unique_ptr<Job> job);
  bool reuseCells(const JobOptions& options);
  void endEverything(std::vector<Command>& commands, StepEvents& events);

  void step(StepEvents& events);
  void planBatch();
  void addDecodeRows(Job& job);
  int promptRowsLeft() const;
  void sharePromptRows(int room);
  void addPromptRows(Job& job, int rows);
  void decodeBatch(StepEvents& events);
  void recover(int status, const std::vector<BatchRow>& rows, StepEvents& events);
  void decodeRows(const std::vector<BatchRow>& rows, StepEvents& events);
  void settle(StepEvents& events);
  void withdrawDrafts(StepEvents& events);
  void sampleRow(int place, Job& job, StepEvents& events);
  void tellPromptToken(int place, const BatchRow& row, StepEvents& events);
  void afterToken(Job& job, int32_t token, size_t textStart, StepEvents& events);

  void finish(Job& job, JobFinished finished, StepEvents& events);
  void finish(Job& job, FinishReason reason, StepEvents& events);
  void fail(Job& job, ErrorCode code, const std::string& message, StepEvents& events);
  void emit(std::unique_ptr<StepEvents> events);
  llama_memory_t memory() const { return llama_get_memory(context_.get()); }
  static bool shouldAbort(void* self);

  // Order matters: the context uses the pool and the hook, and all of them use the model.
  std::shared_ptr<ModelHandle> model_;
  std::unique_ptr<ModelUse> use_;
  ContextSettings settings_;
  EvalHook hook_;
  std::unique_ptr<ThreadPool> pool_;
  ContextPtr context_;
  HookSupport support_;
  LoopCounters counters_;
  EventSink sink_;

  std::mutex inboxMutex_;
  std::condition_variable inboxChanged_;
  std::vector<Command> inbox_;
  /// Sequence of every job that has not finished yet.
  std::map<int, int> running_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> silent_{false};

  std::mutex stopMutex_;
  std::thread thread_;

  // Decode thread only.
  BatchBuilder batch_;
  PrefillBudget prefill_;
  /// Null where nothing is drafted.
  std::unique_ptr<Speculation> speculation_;
  std::vector<std::unique_ptr<Job>> slots_;
  std::vector<Job*> waitingPrompts_;
  /// Prompt rows of each sequence in the step that is planned.
  std::vector<int> promptShares_;
  bool promptsBounded_ = false;
  std::vector<std::unique_ptr<Job>> ended_;
  uint64_t admissions_ = 0;
  CandidateBuffer candidates_;
  std::vector<int32_t> logprobScratch_;
};

}  // namespace steerage
