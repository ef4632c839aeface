#include "model_drafter.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "native_error.h"
#include "speculation.h"

namespace steerage {

namespace {

// Files of one family are padded to different sizes; what lies beyond the smaller one is never drafted.
constexpr int kMostPadding = 128;
// Tokens a step may catch up beside running answers, which wait for it.
constexpr int kCatchUpRows = 64;

ContextPtr openDraftContext(const ModelHandle& draft, const ContextSettings& settings, ggml_abort_callback abort,
                            void* abortData) {
  llama_context_params params = contextParams(settings, abort, abortData);
  // Prefixes are lent from sequence to sequence here too, for nothing in a unified cache.
  params.kv_unified = settings.sequenceCount > 1;
  // Small enough to need no quantised cells, which not every width of heads allows.
  params.type_k = GGML_TYPE_F16;
  params.type_v = GGML_TYPE_F16;
  return initContext(draft, params);
}

}  // namespace

void requireSameVocabulary(const ModelHandle& draft, const ModelHandle& main) {
  const auto refuse = [](const std::string& why) {
    throw NativeError(ErrorCode::ModelUnsupported, "the draft model has another vocabulary than the model: " + why);
  };
  if (llama_vocab_type(draft.vocab()) != llama_vocab_type(main.vocab())) refuse("its tokenizer is of another kind");
  const int draftSize = draft.facts().vocabularySize;
  const int mainSize = main.facts().vocabularySize;
  if (std::abs(draftSize - mainSize) > kMostPadding) {
    refuse(std::to_string(draftSize) + " tokens there, " + std::to_string(mainSize) + " here");
  }
  for (int32_t token = 0; token < std::min(draftSize, mainSize); token++) {
    const char* there = llama_vocab_get_text(draft.vocab(), token);
    const char* here = llama_vocab_get_text(main.vocab(), token);
    if (std::strcmp(there, here) == 0) continue;
    refuse("token " + std::to_string(token) + " is '" + there + "' there and '" + here + "' here");
  }
}

ModelDrafter::ModelDrafter(std::shared_ptr<ModelHandle> draft, const ModelHandle& main, const ContextSettings& settings,
                           const ThreadPool& pool, ggml_abort_callback abort, void* abortData)
    : model_((requireSameVocabulary(*draft, main), std::move(draft))),
      use_(model_),
      context_(openDraftContext(*model_, settings, abort, abortData)),
      memory_(llama_get_memory(context_.get())),
      vocabularySize_(std::min(model_->facts().vocabularySize, main.facts().vocabularySize)),
      batch_(settings.batchTokens),
      held_(static_cast<size_t>(settings.sequenceCount)) {
  pool.attachTo(context_.get());
  requireWithdrawableCells(context_.get(), *model_, "the draft model");
}

void ModelDrafter::begin(int sequence, int lender, int keepTokens) {
  const auto place = static_cast<size_t>(sequence);
  if (lender != sequence) {
    keep(sequence, 0);
    const std::vector<int32_t>& lent = held_[static_cast<size_t>(lender)];
    const size_t shared = std::min(static_cast<size_t>(keepTokens), lent.size());
    if (shared > 0) llama_memory_seq_cp(memory_, lender, sequence, 0, static_cast<int32_t>(shared));
    held_[place].assign(lent.begin(), lent.begin() + static_cast<std::ptrdiff_t>(shared));
    return;
  }
  keep(sequence, static_cast<size_t>(keepTokens));
}

/// Takes back the cells behind the first `tokens` of a sequence.
void ModelDrafter::keep(int sequence, size_t tokens) {
  std::vector<int32_t>& held = held_[static_cast<size_t>(sequence)];
  if (held.size() <= tokens) return;
  held.resize(tokens);
  if (llama_memory_seq_rm(memory_, sequence, static_cast<int32_t>(tokens), -1)) return;
  llama_memory_seq_rm(memory_, sequence, -1, -1);
  held.clear();
}

void ModelDrafter::feed(int sequence, int32_t token, bool output) {
  std::vector<int32_t>& held = held_[static_cast<size_t>(sequence)];
  batch_.add({token, static_cast<int32_t>(held.size()), sequence, output, output, nullptr});
  held.push_back(token);
}

/// False when nothing of the batch may be believed; the sequences in it are then empty.
bool ModelDrafter::decode() {
  if (llama_decode(context_.get(), batch_.batch()) == 0) return true;
  for (const BatchRow& row : batch_.rows()) keep(row.sequence, 0);
  return false;
}

size_t ModelDrafter::missing(const DraftWish& wish) const {
  return wish.tokens->size() - held_[static_cast<size_t>(wish.sequence)].size();
}

/// Takes back what the cells hold of drafts that did not come true, and chooses the wishes that can be drafted for.
void ModelDrafter::reconcile(const std::vector<DraftWish>& wishes) {
  ready_.clear();
  for (const DraftWish& wish : wishes) {
    const std::vector<int32_t>& tokens = *wish.tokens;
    if (static_cast<int64_t>(tokens.size()) + wish.most > model_->positionLimit()) continue;
    const std::vector<int32_t>& held = held_[static_cast<size_t>(wish.sequence)];
    const auto differ = std::mismatch(held.begin(), held.end(), tokens.begin(), tokens.end()).first;
    // The newest token is computed in any case: its logits are the first draft.
    keep(wish.sequence, std::min(static_cast<size_t>(differ - held.begin()), tokens.size() - 1));
    ready_.push_back(&wish);
  }
  // A long prompt that has to be read does not hold up those that are there.
  std::stable_sort(ready_.begin(), ready_.end(),
                   [this](const DraftWish* a, const DraftWish* b) { return missing(*a) < missing(*b); });
}

/// Puts what is missing of the ready wishes into the batch, `rows` at most. Gives those that come up to their newest token.
std::vector<ModelDrafter::Going> ModelDrafter::catchUp(int rows) {
  std::vector<Going> newest;
  for (const DraftWish* wish : ready_) {
    const std::vector<int32_t>& tokens = *wish->tokens;
    for (size_t next = tokens.size() - missing(*wish); next < tokens.size() && rows > 0; next++, rows--) {
      // A token that only the main model has cannot be read here: this answer gets no more drafts.
      if (tokens[next] >= vocabularySize_) break;
      const bool last = next + 1 == tokens.size();
      if (last) newest.push_back({wish, static_cast<int>(batch_.rows().size())});
      feed(wish->sequence, tokens[next], last);
    }
  }
  return newest;
}

/// Takes the likeliest token behind each row and puts it into the next batch, where a wish wants more.
std::vector<ModelDrafter::Going> ModelDrafter::guess(const std::vector<Going>& newest) {
  std::vector<Going> further;
  for (const Going& one : newest) {
    const int32_t token = likeliest(one.place);
    // Nothing comes after an end, so a row for it would be wasted.
    if (token < 0 || llama_vocab_is_eog(model_->vocab(), token)) continue;
    one.wish->draft->push_back(token);
    if (static_cast<int>(one.wish->draft->size()) < one.wish->most) further.push_back(one);
  }
  batch_.clear();
  for (Going& one : further) {
    one.place = static_cast<int>(batch_.rows().size());
    feed(one.wish->sequence, one.wish->draft->back(), true);
  }
  return further;
}

int ModelDrafter::propose(const std::vector<DraftWish>& wishes, int decoding) {
  reconcile(wishes);
  batch_.clear();
  const int beside = std::max(kCatchUpRows, static_cast<int>(wishes.size()));
  std::vector<Going> newest = catchUp(decoding > 1 ? std::min(batch_.room(), beside) : batch_.room());
  int computed = 0;
  while (!batch_.rows().empty()) {
    computed += static_cast<int>(batch_.rows().size());
    if (!decode()) {
      // Cells of sequences that do not draft now may have filled the cache.
      dropAllBut(wishes);
      break;
    }
    newest = guess(newest);
  }
  return computed;
}

/// The token with the largest logit, or -1 without logits.
int32_t ModelDrafter::likeliest(int place) const {
  const float* logits = llama_get_logits_ith(context_.get(), place);
  if (logits == nullptr) return -1;
  return static_cast<int32_t>(std::max_element(logits, logits + vocabularySize_) - logits);
}

void ModelDrafter::dropAllBut(const std::vector<DraftWish>& wishes) {
  for (size_t sequence = 0; sequence < held_.size(); sequence++) {
    const auto wished = [sequence](const DraftWish& wish) { return wish.sequence == static_cast<int>(sequence); };
    if (std::none_of(wishes.begin(), wishes.end(), wished)) keep(static_cast<int>(sequence), 0);
  }
}

}  // namespace steerage
