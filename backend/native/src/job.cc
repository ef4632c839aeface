#include "job.h"

#include "sampler_chain.h"
#include "speculation.h"
#include "stop_matcher.h"

namespace steerage {

Job::Job(JobOptions jobOptions, HookPlan jobHooks)
    : options(std::move(jobOptions)),
      hooks(std::move(jobHooks)),
      stops(std::make_unique<StopMatcher>(options.stopStrings)),
      editedRows(hooks.edits().size(), 0) {}

Job::~Job() = default;

void Job::countPromptToken() {
  promptComputed++;
  if (options.account != nullptr) options.account->computedPrompt.store(static_cast<uint32_t>(promptComputed));
}

void Job::countSampledToken() {
  sampledTokens++;
  if (options.account != nullptr) options.account->computedCompletion.store(static_cast<uint32_t>(sampledTokens));
}

}  // namespace steerage
