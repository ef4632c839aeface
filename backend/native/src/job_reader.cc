#include "job_reader.h"

#include <algorithm>
#include <cmath>

#include "js_values.h"
#include "sae_object.h"
#include "sampler_chain.h"
#include "stop_matcher.h"

namespace steerage {

namespace {

[[noreturn]] void refuse(const std::string& message) { throw NativeError(ErrorCode::InvalidArgument, message); }

/// Calls `read` with each entry of a list member.
template <typename Read>
void forEach(const ObjectReader& owner, const char* name, Read read) {
  const Napi::Array list = owner.array(name);
  for (uint32_t i = 0; i < list.Length(); i++) {
    const Napi::Value entry = list[i];
    read(ObjectReader(entry, owner.path(name) + "[" + std::to_string(i) + "]"));
  }
}

class JobReader {
 public:
  JobReader(const ModelHandle& model, const ContextSettings& settings, const HookSupport& support)
      : model_(model), settings_(settings), support_(support) {}

  JobOptions readOptions(const ObjectReader& job) const {
    JobOptions options;
    options.jobId = job.integer("jobId", 1, INT32_MAX);
    options.sequenceId = job.integer("sequenceId", 0, settings_.sequenceCount - 1);
    options.copyFromSequenceId = job.integer("copyFromSequenceId", 0, settings_.sequenceCount - 1);
    options.tokens = job.integers("tokens");
    if (options.tokens.empty()) refuse("job.tokens must not be empty");
    for (const int32_t token : options.tokens) model_.requireToken(token, "job.tokens");
    if (static_cast<int64_t>(options.tokens.size()) > model_.positionLimit()) {
      refuse("job.tokens is longer than the model's " + std::to_string(model_.positionLimit()) + " positions");
    }
    options.keepTokens = job.integer("keepTokens", 0, static_cast<int64_t>(options.tokens.size()) - 1);
    options.maxTokens = job.integer("maxTokens", 1, INT32_MAX);
    options.ignoreEndOfGeneration = job.boolean("ignoreEndOfGeneration");
    options.logprobs = job.integer("logprobs", -1, 20);
    options.promptLogprobs = job.boolean("promptLogprobs");
    if (options.promptLogprobs && options.logprobs < 0) refuse("job.promptLogprobs needs job.logprobs");
    options.renderedTokens = tokensOf(job, "renderedTokens");
    const Napi::Array stops = job.array("stopStrings");
    for (uint32_t i = 0; i < stops.Length(); i++) {
      const Napi::Value stop = stops[i];
      if (!stop.IsString()) refuse("job.stopStrings must hold strings");
      options.stopStrings.push_back(stop.As<Napi::String>().Utf8Value());
      if (options.stopStrings.back().empty()) refuse("job.stopStrings must not hold an empty string");
    }
    options.sampler = readSampler(job.object("sampler"));
    return options;
  }

  HookPlan readHooks(const ObjectReader& job) const {
    std::vector<AdditiveEdit> edits;
    std::vector<SensingPlan> sensing;
    std::vector<CapturePlan> capture;
    forEach(job, "edits", [&](const ObjectReader& entry) {
      AdditiveEdit edit{readLayer(entry), readRange(entry), entry.floats("vector")};
      if (static_cast<int>(edit.vector.size()) != model_.facts().embeddingWidth) {
        refuse(entry.path("vector") + " must have " + std::to_string(model_.facts().embeddingWidth) + " values");
      }
      for (const float value : edit.vector) {
        if (!std::isfinite(value)) refuse(entry.path("vector") + " must be finite");
      }
      edits.push_back(std::move(edit));
    });
    forEach(job, "sensing", [&](const ObjectReader& entry) { sensing.push_back(readSensing(entry)); });
    forEach(job, "capture", [&](const ObjectReader& entry) {
      capture.push_back({readLayer(entry), readRange(entry), readPoint(entry)});
    });
    return HookPlan(std::move(edits), std::move(sensing), std::move(capture));
  }

 private:
  SamplerSettings readSampler(const ObjectReader& sampler) const {
    SamplerSettings settings;
    settings.seed = sampler.unsignedInteger("seed");
    settings.temperature = positive(sampler, "temperature", 0.0);
    settings.topK = sampler.integer("topK", 0, INT32_MAX);
    settings.topP = positive(sampler, "topP", 0.0);
    settings.minP = positive(sampler, "minP", 0.0);
    settings.repeatPenalty = positive(sampler, "repeatPenalty", 1e-6);
    settings.frequencyPenalty = static_cast<float>(sampler.number("frequencyPenalty"));
    settings.presencePenalty = static_cast<float>(sampler.number("presencePenalty"));
    settings.penaltyWindow = sampler.integer("penaltyWindow", -1, INT32_MAX);
    forEach(sampler, "logitBias", [&](const ObjectReader& entry) {
      const int32_t token = entry.integer("token", 0, INT32_MAX);
      model_.requireToken(token, "job.sampler.logitBias");
      settings.logitBias.emplace_back(token, static_cast<float>(entry.number("bias")));
    });
    settings.allowedTokens = tokensOf(sampler, "allowedTokens");
    settings.grammar = sampler.text("grammar");
    settings.grammarLazy = sampler.boolean("grammarLazy");
    settings.grammarTriggers = sampler.text("grammarTriggers");
    return settings;
  }

  /// Token ids of the vocabulary, ascending, each once.
  std::vector<int32_t> tokensOf(const ObjectReader& owner, const char* name) const {
    std::vector<int32_t> tokens = owner.integers(name);
    for (const int32_t token : tokens) model_.requireToken(token, owner.path(name).c_str());
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    return tokens;
  }

  static float positive(const ObjectReader& owner, const char* name, double least) {
    const double value = owner.number(name);
    if (value < least) refuse(owner.path(name) + " must be at least " + std::to_string(least));
    return static_cast<float>(value);
  }

  int readLayer(const ObjectReader& entry) const {
    const int layer = entry.integer("layer", 0, model_.facts().layerCount - 1);
    if (support_.refusal) throw NativeError(ErrorCode::HookPointUnsupported, *support_.refusal);
    if (!support_.layers[static_cast<size_t>(layer)]) {
      throw NativeError(ErrorCode::HookPointUnsupported, "layer " + std::to_string(layer) + " shows no residual rows");
    }
    return layer;
  }

  static PositionRange readRange(const ObjectReader& entry) {
    PositionRange range;
    range.from = entry.integer("fromPosition", 0, INT32_MAX);
    range.to = entry.integer("toPosition", -1, INT32_MAX);
    return range;
  }

  static ReadPoint readPoint(const ObjectReader& entry) {
    const std::string point = entry.text("readPoint");
    if (point == "pre_steering") return ReadPoint::PreSteering;
    if (point == "post_steering") return ReadPoint::PostSteering;
    refuse(entry.path("readPoint") + " must be pre_steering or post_steering");
  }

  SensingPlan readSensing(const ObjectReader& entry) const {
    SensingPlan plan;
    plan.sae = SaeObject::encoderOf(entry.member("sae"), entry.path("sae"));
    if (plan.sae->embeddingWidth() != model_.facts().embeddingWidth) {
      throw NativeError(ErrorCode::SaeShapeMismatch,
                        entry.path("sae") + " has width " + std::to_string(plan.sae->embeddingWidth()) +
                            ", the model has " + std::to_string(model_.facts().embeddingWidth));
    }
    plan.layer = readLayer(entry);
    plan.range = readRange(entry);
    plan.readPoint = readPoint(entry);
    plan.topK = entry.integer("topK", 0, INT32_MAX);
    plan.subset = !entry.member("features").IsNull();
    if (!plan.subset) return plan;
    plan.features = entry.integers("features");
    for (const int32_t feature : plan.features) {
      if (feature < 0 || feature >= plan.sae->featureCount()) {
        refuse(entry.path("features") + ": " + std::to_string(feature) + " is not one of " +
               std::to_string(plan.sae->featureCount()) + " features");
      }
    }
    return plan;
  }

  const ModelHandle& model_;
  const ContextSettings& settings_;
  const HookSupport& support_;
};

}  // namespace

std::unique_ptr<Job> readJob(const Napi::Value& value, const ModelHandle& model, const ContextSettings& settings,
                             const HookSupport& support) {
  const ObjectReader job(value, "job");
  const JobReader reader(model, settings, support);
  return std::make_unique<Job>(reader.readOptions(job), reader.readHooks(job));
}

}  // namespace steerage
