#include "decode_loop.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iterator>

#include "js_values.h"
#include "logprobs.h"
#include "stop_matcher.h"

namespace steerage {

namespace {

// Return values of llama_decode that the loop tells apart.
constexpr int kDecoded = 0;
constexpr int kNoFreeCells = 1;
// Rows of one step whose logits are kept for the log-probabilities of a prompt: each is a whole vocabulary of floats.
constexpr int kPromptLogprobRows = 64;
// An answer with fewer tokens has no pace yet that others' prompts could break: it came in the same burst as they did.
constexpr int kTokensOfAStart = 4;

}  // namespace

DecodeLoop::DecodeLoop(std::shared_ptr<ModelHandle> model, const ContextSettings& settings)
    : model_(std::move(model)),
      use_(std::make_unique<ModelUse>(model_)),
      settings_(settings),
      hook_(model_->facts().layerCount, model_->facts().embeddingWidth,
            settings.hasStreams() ? settings.sequenceCount : 0),
      pool_(std::make_unique<ThreadPool>(settings.threads)),
      context_(openContext(*model_, settings, hook_, shouldAbort, this)),
      batch_(settings.batchTokens),
      slots_(static_cast<size_t>(settings.sequenceCount)),
      promptShares_(slots_.size()) {
  pool_->attachTo(context_.get());
  support_ = probeHooks(context_.get(), *model_, hook_, settings);
  speculation_ = Speculation::open(context_.get(), *model_, settings, *pool_, shouldAbort, this);
}

DecodeLoop::~DecodeLoop() { stop(); }

bool DecodeLoop::shouldAbort(void* self) { return static_cast<DecodeLoop*>(self)->stopping_.load(); }

void DecodeLoop::start(EventSink sink) {
  sink_ = std::move(sink);
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "steerage-decode");
}

void DecodeLoop::submit(std::unique_ptr<Job> job) {
  const JobOptions& options = job->options;
  job->sampler = std::make_unique<SamplerChain>(*model_, options, settings_.cellCount);
  const std::lock_guard<std::mutex> lock(inboxMutex_);
  if (stopping_) throw NativeError(ErrorCode::Disposed, "the context has been disposed");
  for (const auto& [id, sequence] : running_) {
    if (id == options.jobId) throw NativeError(ErrorCode::InvalidArgument, "job " + std::to_string(id) + " runs already");
    if (sequence == options.sequenceId) {
      throw NativeError(ErrorCode::InvalidArgument, "sequence " + std::to_string(sequence) + " is busy");
    }
  }
  running_.emplace(options.jobId, options.sequenceId);
  inbox_.push_back({Command::Kind::Submit, options.jobId, std::move(job)});
  inboxChanged_.notify_one();
}

void DecodeLoop::cancel(int jobId) {
  const std::lock_guard<std::mutex> lock(inboxMutex_);
  if (running_.count(jobId) == 0) return;
  inbox_.push_back({Command::Kind::Cancel, jobId, nullptr});
  inboxChanged_.notify_one();
}

void DecodeLoop::clearSequence(int sequenceId) {
  const std::lock_guard<std::mutex> lock(inboxMutex_);
  if (stopping_) throw NativeError(ErrorCode::Disposed, "the context has been disposed");
  for (const auto& [id, sequence] : running_) {
    if (sequence == sequenceId) {
      throw NativeError(ErrorCode::InvalidArgument, "sequence " + std::to_string(sequence) + " is busy");
    }
  }
  inbox_.push_back({Command::Kind::Clear, sequenceId, nullptr});
  inboxChanged_.notify_one();
}

void DecodeLoop::stop() {
  const std::lock_guard<std::mutex> stopLock(stopMutex_);
  {
    const std::lock_guard<std::mutex> lock(inboxMutex_);
    stopping_ = true;
    inboxChanged_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  ended_.clear();
  speculation_.reset();
  settings_.draftModel.reset();
  context_.reset();
  pool_.reset();
  use_.reset();
  model_.reset();
}

void DecodeLoop::stopSilently() {
  silent_ = true;
  stop();
}

void DecodeLoop::run() {
  std::vector<Command> commands;
  while (true) {
    commands.clear();
    const bool goOn = waitForWork(commands);
    auto events = std::make_unique<StepEvents>();
    if (!goOn) {
      endEverything(commands, *events);
      emit(std::move(events));
      return;
    }
    for (Command& command : commands) obey(command, *events);
    step(*events);
    emit(std::move(events));
    ended_.clear();
  }
}

bool DecodeLoop::waitForWork(std::vector<Command>& commands) {
  const bool idle = std::none_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot != nullptr; });
  std::unique_lock<std::mutex> lock(inboxMutex_);
  if (idle) inboxChanged_.wait(lock, [this] { return stopping_.load() || !inbox_.empty(); });
  commands.swap(inbox_);
  return !stopping_;
}

void DecodeLoop::obey(Command& command, StepEvents& events) {
  switch (command.kind) {
    case Command::Kind::Submit:
      admit(std::move(command.job));
      return;
    case Command::Kind::Cancel:
      for (const auto& slot : slots_) {
        if (!slot || slot->options.jobId != command.id) continue;
        finish(*slot, FinishReason::Cancelled, events);
        return;
      }
      return;
    case Command::Kind::Clear:
      llama_memory_seq_rm(memory(), command.id, -1, -1);
      return;
  }
}

void DecodeLoop::admit(std::unique_ptr<Job> job) {
  auto& slot = slots_[static_cast<size_t>(job->options.sequenceId)];
  slot = std::move(job);
  slot->admission = ++admissions_;
  slot->promptInCells = reuseCells(slot->options) ? slot->options.keepTokens : 0;
  if (speculation_) speculation_->begin(*slot);
  waitingPrompts_.push_back(slot.get());
}

/// Leaves the cells [0, keepTokens) in the sequence, or none and returns false when they are not all there. llama.cpp
/// overwrites cells that have left the attention window of a sliding-window model, so a prefix can be gone although
/// nobody dropped it; what is left of a sequence is always without holes.
bool DecodeLoop::reuseCells(const JobOptions& options) {
  const int sequence = options.sequenceId;
  const int keep = options.keepTokens;
  if (keep > 0 && options.copyFromSequenceId != sequence) {
    // The lender may be running: its prompt cells stay as they are while it does.
    llama_memory_seq_rm(memory(), sequence, -1, -1);
    // From stream to stream only all cells can be copied; what is too much is cut below.
    const int end = settings_.hasStreams() ? -1 : keep;
    llama_memory_seq_cp(memory(), options.copyFromSequenceId, sequence, -1, end);
  }
  const int window = model_->facts().slidingWindow;
  const int firstNeeded = window > 0 ? std::max(0, keep - window) : 0;
  const bool kept = keep > 0 && llama_memory_seq_rm(memory(), sequence, keep, -1) &&
                    llama_memory_seq_pos_max(memory(), sequence) == keep - 1 &&
                    llama_memory_seq_pos_min(memory(), sequence) <= firstNeeded;
  if (!kept) llama_memory_seq_rm(memory(), sequence, -1, -1);
  return kept;
}

void DecodeLoop::endEverything(std::vector<Command>& commands, StepEvents& events) {
  for (const auto& slot : slots_) {
    if (slot) finish(*slot, FinishReason::Cancelled, events);
  }
  for (Command& command : commands) {
    if (command.kind != Command::Kind::Submit) continue;
    auto& slot = slots_[static_cast<size_t>(command.job->options.sequenceId)];
    slot = std::move(command.job);
    finish(*slot, FinishReason::Cancelled, events);
  }
}

void DecodeLoop::step(StepEvents& events) {
  const auto planned = std::chrono::steady_clock::now();
  planBatch();
  if (batch_.rows().empty()) return;
  const auto begun = std::chrono::steady_clock::now();
  const auto rowsThat = [this](auto which) {
    return static_cast<int>(std::count_if(batch_.rows().begin(), batch_.rows().end(), which));
  };
  const int promptRows = rowsThat([](const BatchRow& row) { return !row.job->promptDone(); });
  const int drafts = rowsThat([](const BatchRow& row) { return row.draft; });
  const int decoding = static_cast<int>(batch_.rows().size()) - promptRows - drafts;
  const uint64_t sampledBefore = counters_.completionTokens;
  try {
    decodeBatch(events);
  } catch (...) {
    // Nothing below is meant to throw except for lack of memory; the jobs of the step cannot go on, the loop can.
    const NativeError error = currentError();
    hook_.hooks().discard();
    for (Job* job : ownersOf(std::vector<BatchRow>(batch_.rows()))) {
      if (!job->finished) fail(*job, error.code(), error.what(), events);
    }
  }
  const auto ended = std::chrono::steady_clock::now();
  const auto secondsSince = [ended](auto moment) { return std::chrono::duration<double>(ended - moment).count(); };
  // A row of a batch that is full of prompts costs less than one of a few beside answers, and tells nothing of those.
  if (drafts == 0 && (promptRows == 0 || promptsBounded_)) prefill_.record(decoding, promptRows, secondsSince(begun));
  if (speculation_ && promptRows == 0) {
    const auto sampled = static_cast<int>(counters_.completionTokens - sampledBefore);
    speculation_->record(decoding, drafts, sampled, secondsSince(planned));
  }
  counters_.steps++;
  counters_.ownershipChecks = hook_.check().checkedMicroBatches();
  counters_.hookCalls = hook_.hookCalls();
}

void DecodeLoop::planBatch() {
  batch_.clear();
  const auto decodes = [](const auto& slot) { return slot && slot->sampledTokens > 0; };
  const auto decoding = static_cast<int>(std::count_if(slots_.begin(), slots_.end(), decodes));
  const int room = batch_.room() - decoding;
  const int waiting = std::max(1, static_cast<int>(waitingPrompts_.size()));
  const auto keepsPace = [](const auto& slot) { return slot && slot->sampledTokens >= kTokensOfAStart; };
  promptsBounded_ = settings_.boundsPrefill && std::any_of(slots_.begin(), slots_.end(), keepsPace);
  const int budget = promptsBounded_ ? prefill_.rows(waiting, room) : room;
  // Drafts take what prompts leave.
  if (speculation_) {
    const int computed = speculation_->propose(slots_, decoding, budget - promptRowsLeft());
    counters_.draftModelTokens += static_cast<uint64_t>(computed);
  }
  sharePromptRows(budget);
  // Streams of neighbours are computed together when their rows come by ascending sequence, and as many rows of each: so
  // answers, which have one, come by themselves.
  for (const auto& slot : slots_) {
    if (slot && !decodes(slot)) addPromptRows(*slot, promptShares_[static_cast<size_t>(slot->options.sequenceId)]);
  }
  for (const auto& slot : slots_) {
    if (decodes(slot)) addDecodeRows(*slot);
  }
}

/// Gives the room that drafts leave to the prompts, the one that waits longest first.
void DecodeLoop::sharePromptRows(int room) {
  for (const auto& slot : slots_) {
    if (slot && slot->drafts) room -= static_cast<int>(slot->drafts->proposed.size());
  }
  std::fill(promptShares_.begin(), promptShares_.end(), 0);
  for (const Job* job : waitingPrompts_) {
    const int left = static_cast<int>(job->options.tokens.size()) - job->promptInCells;
    const int most = job->options.promptLogprobs ? std::min(room, kPromptLogprobRows) : room;
    const int rows = std::max(0, std::min(left, most));
    promptShares_[static_cast<size_t>(job->options.sequenceId)] = rows;
    room -= rows;
  }
}

/// The answer's last token, and what is drafted behind it.
void DecodeLoop::addDecodeRows(Job& job) {
  int position = job.nextPosition();
  batch_.add({job.lastToken, position, job.options.sequenceId, true, true, &job});
  if (!job.drafts) return;
  for (const int32_t token : job.drafts->proposed) {
    batch_.add({token, ++position, job.options.sequenceId, true, true, &job, true});
  }
}

int DecodeLoop::promptRowsLeft() const {
  int rows = 0;
  for (const Job* job : waitingPrompts_) rows += static_cast<int>(job->options.tokens.size()) - job->promptInCells;
  return rows;
}

void DecodeLoop::addPromptRows(Job& job, int rows) {
  const std::vector<int32_t>& tokens = job.options.tokens;
  const bool told = job.options.promptLogprobs;
  const int end = job.promptInCells + rows;
  // In the last layer only output rows remain, so rows that are read or edited there must be outputs.
  const LayerPlan* lastLayer = job.hooks.at(model_->facts().layerCount - 1);
  for (int position = job.promptInCells; position < end; position++) {
    const bool last = position == static_cast<int>(tokens.size()) - 1;
    const bool hooked = lastLayer != nullptr && job.hooks.touches(*lastLayer, position);
    batch_.add({tokens[static_cast<size_t>(position)], position, job.options.sequenceId, last || hooked || told, last, &job});
  }
}

void DecodeLoop::decodeBatch(StepEvents& events) {
  hook_.begin(batch_);
  const int status = llama_decode(context_.get(), batch_.batch());
  hook_.finish();
  if (status == kDecoded) {
    settle(events);
    return;
  }
  hook_.hooks().discard();
  // The loop is about to end everything anyway.
  if (stopping_) return;
  recover(status, std::vector<BatchRow>(batch_.rows()), events);
}

/// Fails as few jobs as possible: the youngest when the cells are full, else whichever fails alone.
void DecodeLoop::recover(int status, const std::vector<BatchRow>& rows, StepEvents& events) {
  const std::vector<Job*> owners = ownersOf(rows);
  for (const Job* job : owners) {
    const auto first = std::find_if(rows.begin(), rows.end(), [job](const BatchRow& row) { return row.job == job; });
    llama_memory_seq_rm(memory(), job->options.sequenceId, first->position, -1);
  }
  const auto isDraft = [](const BatchRow& row) { return row.draft; };
  if (std::any_of(rows.begin(), rows.end(), isDraft)) {
    // Nobody may lose anything by a guess.
    std::vector<BatchRow> sure;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(sure), std::not_fn(isDraft));
    decodeRows(sure, events);
    return;
  }
  const std::string reason =
      status == kNoFreeCells ? "no free cells are left" : "llama_decode failed with " + std::to_string(status);
  if (owners.size() == 1) {
    fail(*owners.front(), ErrorCode::DecodeFailed, reason, events);
    return;
  }
  // Who has cells of its own runs out of them alone.
  if (status == kNoFreeCells && !settings_.hasStreams()) {
    Job* youngest = *std::max_element(owners.begin(), owners.end(),
                                      [](const Job* a, const Job* b) { return a->admission < b->admission; });
    fail(*youngest, ErrorCode::DecodeFailed, reason, events);
    decodeRows(rowsOf(rows, youngest, true), events);
    return;
  }
  for (const Job* job : owners) decodeRows(rowsOf(rows, job, false), events);
}

void DecodeLoop::decodeRows(const std::vector<BatchRow>& rows, StepEvents& events) {
  batch_.clear();
  for (const BatchRow& row : rows) batch_.add(row);
  decodeBatch(events);
}

void DecodeLoop::settle(StepEvents& events) {
  if (hook_.check().violated()) {
    // Other jobs do not depend on our row order: llama.cpp itself hands out logits by batch row.
    hook_.hooks().discard();
    for (Job* job : ownersOf(batch_.rows())) {
      if (job->hooks.matters()) fail(*job, ErrorCode::RowOwnershipViolation, hook_.check().violation(), events);
    }
  }

  const std::vector<BatchRow>& rows = batch_.rows();
  for (size_t place = 0; place < rows.size(); place++) {
    const BatchRow& row = rows[place];
    Job& job = *row.job;
    if (job.finished || !job.owns(row)) continue;
    hook_.hooks().accept(static_cast<int>(place));
    if (row.position < static_cast<int>(job.options.tokens.size())) {
      job.promptInCells++;
      job.countPromptToken();
      counters_.promptTokens++;
      const bool lastOfJob = place + 1 == rows.size() || rows[place + 1].job != &job;
      if (lastOfJob) events.prompts.push_back({job.options.jobId, job.promptComputed});
    }
    if (job.options.promptLogprobs) tellPromptToken(static_cast<int>(place), row, events);
    if (row.sampled && !job.finished) sampleRow(static_cast<int>(place), job, events);
  }
  if (speculation_) withdrawDrafts(events);
  hook_.hooks().commit(events);
  waitingPrompts_.erase(std::remove_if(waitingPrompts_.begin(), waitingPrompts_.end(),
                                       [](const Job* job) { return job->finished || job->promptDone(); }),
                        waitingPrompts_.end());
}

void DecodeLoop::withdrawDrafts(StepEvents& events) {
  const DraftsSettled settled = speculation_->settle(batch_.rows(), hook_.hooks(), memory());
  counters_.draftedTokens += static_cast<uint64_t>(settled.drafted);
  counters_.acceptedTokens += static_cast<uint64_t>(settled.accepted);
  for (Job* job : settled.stuck) {
    if (!job->finished) fail(*job, ErrorCode::Internal, "rejected drafts could not be taken out of the cache", events);
  }
}

/// The row at position p gives the chances of the prompt token at p + 1; the first one has none.
void DecodeLoop::tellPromptToken(int place, const BatchRow& row, StepEvents& events) {
  const JobOptions& options = row.job->options;
  const int next = row.position + 1;
  if (next >= static_cast<int>(options.tokens.size())) return;
  const float* logits = llama_get_logits_ith(context_.get(), place);
  if (logits == nullptr) {
    fail(*row.job, ErrorCode::Internal, "the step gave no logits for this job", events);
    return;
  }
  PromptLogprobs told;
  told.position = next;
  told.chance = computeLogprobs(logits, model_->facts().vocabularySize, {}, options.tokens[static_cast<size_t>(next)],
                                options.logprobs, logprobScratch_);
  told.chance.jobId = options.jobId;
  events.promptLogprobs.push_back(std::move(told));
}

void DecodeLoop::sampleRow(int place, Job& job, StepEvents& events) {
  const float* logits = llama_get_logits_ith(context_.get(), place);
  if (logits == nullptr) {
    fail(job, ErrorCode::Internal, "the step gave no logits for this job", events);
    return;
  }
  try {
    const llama_token token = job.sampler->sample(logits, candidates_);
    const bool ends = llama_vocab_is_eog(model_->vocab(), token);
    const size_t textStart = events.text.size();
    const std::vector<int32_t>& rendered = job.options.renderedTokens;
    const bool shown = std::binary_search(rendered.begin(), rendered.end(), token);
    if (!ends || shown) model_->appendTokenBytes(token, shown, events.text);
    events.addRecord(job.options.jobId, token, textStart,
                     static_cast<int>(job.options.tokens.size()) + job.sampledTokens);
    if (job.options.logprobs >= 0) {
      events.logprobs.push_back(computeLogprobs(logits, model_->facts().vocabularySize, job.options.sampler.allowedTokens,
                                                token, job.options.logprobs, logprobScratch_));
      events.logprobs.back().jobId = job.options.jobId;
    }
    afterToken(job, token, textStart, events);
  } catch (...) {
    const NativeError error = currentError();
    fail(job, error.code(), error.what(), events);
  }
}

void DecodeLoop::afterToken(Job& job, int32_t token, size_t textStart, StepEvents& events) {
  job.lastToken = token;
  job.countSampledToken();
  if (job.drafts) job.drafts->tokens.push_back(token);
  counters_.completionTokens++;
  const auto stop = job.stops->feed(events.text.data() + textStart, events.text.size() - textStart);
  // A grammar that is through allows nothing further, so it ends even a job that ignores the end.
  const bool mayIgnoreEnd = job.options.ignoreEndOfGeneration && job.options.sampler.grammar.empty();
  if (llama_vocab_is_eog(model_->vocab(), token) && !mayIgnoreEnd) {
    finish(job, FinishReason::EndOfGeneration, events);
  } else if (stop) {
    JobFinished finished;
    finished.reason = FinishReason::StopString;
    finished.stopIndex = stop->stopIndex;
    finished.textEndBytes = stop->textEndBytes;
    finish(job, std::move(finished), events);
  } else if (job.sampledTokens >= job.options.maxTokens || job.nextPosition() >= model_->positionLimit()) {
    finish(job, FinishReason::Length, events);
  }
}

void DecodeLoop::finish(Job& job, FinishReason reason, StepEvents& events) {
  JobFinished finished;
  finished.reason = reason;
  finish(job, std::move(finished), events);
}

void DecodeLoop::fail(Job& job, ErrorCode code, const std::string& message, StepEvents& events) {
  // Whatever its cells hold, nobody may build on them.
  llama_memory_seq_rm(memory(), job.options.sequenceId, -1, -1);
  JobFinished finished;
  finished.reason = FinishReason::Failed;
  finished.errorCode = code;
  finished.errorMessage = message;
  finish(job, std::move(finished), events);
}

void DecodeLoop::finish(Job& job, JobFinished finished, StepEvents& events) {
  finished.jobId = job.options.jobId;
  finished.computedPromptTokens = job.promptComputed;
  finished.computedCompletionTokens = job.sampledTokens;
  finished.editedRows = job.editedRows;
  events.finished.push_back(std::move(finished));
  job.finished = true;
  if (job.options.account != nullptr) AccountBoard::release(job.options.account);
  waitingPrompts_.erase(std::remove(waitingPrompts_.begin(), waitingPrompts_.end(), &job), waitingPrompts_.end());
  // Rows of the step may still point at the job: it goes when the step is over.
  auto& slot = slots_[static_cast<size_t>(job.options.sequenceId)];
  const std::lock_guard<std::mutex> lock(inboxMutex_);
  running_.erase(job.options.jobId);
  ended_.push_back(std::move(slot));
}

void DecodeLoop::emit(std::unique_ptr<StepEvents> events) {
  if (!events->empty() && !silent_) sink_(std::move(events));
}

}  // namespace steerage
