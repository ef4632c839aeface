// Speculative decoding of one context: which running answers get drafts in the step to come, and what became of them.
// A draft is a row behind the answer's last token. Rows are sampled in order with the answer's own sampler, and a draft
// counts only when the token that was drawn before it is the drafted one: so the text is what it would have been without.
// Decode thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "batch_builder.h"
#include "draft_gain.h"
#include "draft_policy.h"
#include "drafter.h"
#include "llama.h"

namespace steerage {

struct ContextSettings;
class HookSet;
class Job;
class ModelHandle;
class ThreadPool;

/// The part of a job that drafting needs.
struct JobDrafts {
  explicit JobDrafts(int most) : policy(most) {}
  DraftPolicy policy;
  /// The prompt and every token sampled so far.
  std::vector<int32_t> tokens;
  /// For the step to come.
  std::vector<int32_t> proposed;
};

/// What became of the drafts of one step.
struct DraftsSettled {
  int drafted = 0;
  int accepted = 0;
  /// Jobs whose rejected cells could not be taken back.
  std::vector<Job*> stuck;
};

class Speculation {
 public:
  Speculation(std::unique_ptr<Drafter> drafter, const ContextSettings& settings, int positionLimit);

  /// With the drafter that the settings ask for, or null where nothing is drafted. Leaves the main context's memory empty.
  /// Throws `model_unsupported`; for a draft model's context `context_failed` and `out_of_memory` too.
  static std::unique_ptr<Speculation> open(llama_context* main, const ModelHandle& model,
                                           const ContextSettings& settings, const ThreadPool& pool,
                                           ggml_abort_callback abort, void* abortData);

  /// Before the job's first step, when its prompt's reused cells are in place.
  void begin(Job& job);
  /// Fills `proposed` of the running answers, at most `room` tokens in all. `decoding` is how many answers run. Gives the
  /// tokens that a draft model computed for it.
  int propose(const std::vector<std::unique_ptr<Job>>& slots, int decoding, int room);
  /// After the rows of the step were sampled: takes back what it computed for drafts that were not drawn, so that cells
  /// and findings are those of the answers.
  static DraftsSettled settle(const std::vector<BatchRow>& rows, HookSet& hooks, llama_memory_t memory);
  /// A step without prompt rows has succeeded, `drafts` of its rows drafted.
  void record(int decoding, int drafts, int sampledTokens, double seconds);

 private:
  int mostFor(const Job& job) const;

  std::unique_ptr<Drafter> drafter_;
  int draftTokens_;
  bool whenFaster_;
  int positionLimit_;
  DraftGain gain_;
  std::vector<DraftWish> wishes_;
  bool modelRan_ = false;
};

/// Proves by a tiny decode that the last cells of a sequence can be taken back. Leaves the memory empty. Throws
/// `model_unsupported` with the reason; `whose` names the model in it.
void requireWithdrawableCells(llama_context* context, const ModelHandle& model, const std::string& whose);

}  // namespace steerage
