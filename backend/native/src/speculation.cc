#include "speculation.h"

#include <algorithm>
#include <string>

#include "context_settings.h"
#include "hook_set.h"
#include "job.h"
#include "model_drafter.h"
#include "model_handle.h"
#include "native_error.h"
#include "prompt_lookup.h"

namespace steerage {

Speculation::Speculation(std::unique_ptr<Drafter> drafter, const ContextSettings& settings, int positionLimit)
    : drafter_(std::move(drafter)),
      draftTokens_(settings.draftTokens),
      whenFaster_(settings.draftsWhenFaster),
      positionLimit_(positionLimit) {}

std::unique_ptr<Speculation> Speculation::open(llama_context* main, const ModelHandle& model,
                                               const ContextSettings& settings, const ThreadPool& pool,
                                               ggml_abort_callback abort, void* abortData) {
  if (settings.draftTokens == 0) return nullptr;
  requireWithdrawableCells(main, model, "this model");
  std::unique_ptr<Drafter> drafter = std::make_unique<PromptLookup>();
  if (settings.draftModel) {
    drafter = std::make_unique<ModelDrafter>(settings.draftModel, model, settings, pool, abort, abortData);
  }
  return std::make_unique<Speculation>(std::move(drafter), settings, model.positionLimit());
}

void Speculation::begin(Job& job) {
  drafter_->begin(job.options.sequenceId, job.options.copyFromSequenceId, job.promptInCells);
  // A first token comes from the prompt and a last one is not fed back, so shorter answers have no room for a draft.
  if (job.options.maxTokens < 3) return;
  job.drafts = std::make_unique<JobDrafts>(draftTokens_);
  job.drafts->tokens = job.options.tokens;
}

/// No draft beyond what the answer may still become: its cells are reserved that far and no further.
int Speculation::mostFor(const Job& job) const {
  const int leftAfterNext = job.options.maxTokens - job.sampledTokens - 1;
  return std::min(leftAfterNext, positionLimit_ - 1 - job.nextPosition());
}

int Speculation::propose(const std::vector<std::unique_ptr<Job>>& slots, int decoding, int room) {
  modelRan_ = false;
  wishes_.clear();
  const bool favoured = room > 0 && decoding > 0 && (!whenFaster_ || gain_.favours(decoding));
  for (const auto& slot : slots) {
    if (!slot || !slot->drafts || slot->sampledTokens == 0) continue;
    JobDrafts& drafts = *slot->drafts;
    drafts.proposed.clear();
    if (!favoured) continue;
    const int most = std::min({drafts.policy.next(), mostFor(*slot), room});
    if (most < 1) continue;
    room -= most;
    wishes_.push_back({slot->options.sequenceId, &drafts.tokens, most, &drafts.proposed});
  }
  if (wishes_.empty()) return 0;
  const int computed = drafter_->propose(wishes_, decoding);
  modelRan_ = computed > 0;
  return computed;
}

DraftsSettled Speculation::settle(const std::vector<BatchRow>& rows, HookSet& hooks, llama_memory_t memory) {
  DraftsSettled settled;
  for (size_t place = 0; place < rows.size(); place++) {
    if (!rows[place].draft) continue;
    Job& job = *rows[place].job;
    const int first = rows[place].position;
    while (place + 1 < rows.size() && rows[place + 1].job == &job) place++;
    const int drafted = rows[place].position - first + 1;
    const int accepted = std::clamp(job.nextPosition() - first, 0, drafted);
    job.drafts->policy.record(drafted, accepted);
    settled.drafted += drafted;
    settled.accepted += accepted;
    if (accepted == drafted) continue;
    hooks.reject(job.options.jobId, job.nextPosition());
    if (!llama_memory_seq_rm(memory, job.options.sequenceId, job.nextPosition(), -1)) settled.stuck.push_back(&job);
  }
  return settled;
}

void Speculation::record(int decoding, int drafts, int sampledTokens, double seconds) {
  gain_.record(decoding, drafts > 0 || modelRan_, sampledTokens, seconds);
}

void requireWithdrawableCells(llama_context* context, const ModelHandle& model, const std::string& whose) {
  const std::string because =
      "speculative decoding takes back cells of rejected drafts, which the memory of " + whose + " does not allow";
  if (model.facts().recurrent) throw NativeError(ErrorCode::ModelUnsupported, because + ": it is recurrent");
  if (model.facts().hybrid) throw NativeError(ErrorCode::ModelUnsupported, because + ": it is recurrent in part");
  constexpr int kRows = 3;
  llama_batch batch = llama_batch_init(kRows, 0, 1);
  for (int i = 0; i < kRows; i++) {
    batch.token[i] = std::min(i + 1, model.facts().vocabularySize - 1);
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = i + 1 == kRows ? 1 : 0;
  }
  batch.n_tokens = kRows;
  const int status = llama_decode(context, batch);
  llama_batch_free(batch);
  const llama_memory_t memory = llama_get_memory(context);
  const bool withdrawn = status == 0 && memory != nullptr && llama_memory_seq_rm(memory, 0, 1, -1) &&
                         llama_memory_seq_pos_max(memory, 0) == 0 && llama_memory_seq_pos_min(memory, 0) == 0;
  if (memory != nullptr) llama_memory_clear(memory, true);
  if (!withdrawn) throw NativeError(ErrorCode::ModelUnsupported, because);
}

}  // namespace steerage
