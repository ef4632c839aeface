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
    options.account = readAccount(job);
    return options;
  }

  HookPlan readHooks(const ObjectReader& job) const {
    std::vector<ResidualEdit> edits;
    std::vector<SensingPlan> sensing;
    std::vector<CapturePlan> capture;
    forEach(job, "edits", [&](const ObjectReader& entry) { edits.push_back(readEdit(entry)); });
    forEach(job, "sensing", [&](const ObjectReader& entry) { sensing.push_back(readSensing(entry)); });
    forEach(job, "capture", [&](const ObjectReader& entry) {
      capture.push_back({readLayer(entry), readRange(entry), readPoint(entry)});
    });
    return HookPlan(std::move(edits), std::move(sensing), std::move(capture));
  }

 private:
  AccountBoard::Record* readAccount(const ObjectReader& job) const {
    const Napi::Value place = job.member("accountRecord");
    if (place.IsUndefined() || !settings_.accounts) return nullptr;
    return settings_.accounts->at(job.integer("accountRecord", -1, INT32_MAX));
  }

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

  ResidualEdit readEdit(const ObjectReader& entry) const {
    ResidualEdit edit;
    edit.layer = readLayer(entry);
    edit.range = readRange(entry);
    if (isGiven(entry, "ranges")) edit.ranges = readRanges(entry);
    if (isGiven(entry, "excludedTokens")) {
      edit.excludedTokens = entry.integers("excludedTokens");
      std::sort(edit.excludedTokens.begin(), edit.excludedTokens.end());
    }
    const auto width = static_cast<size_t>(model_.facts().embeddingWidth);
    if (isGiven(entry, "terms")) edit.terms = readTerms(entry.object("terms"), width);
    edit.vector = readFloats(entry, "vector", edit.terms ? 0 : width);
    if (isGiven(entry, "condition")) edit.condition = readCondition(entry.object("condition"));
    return edit;
  }

  static bool isGiven(const ObjectReader& entry, const char* name) {
    const Napi::Value value = entry.member(name);
    return !value.IsNull() && !value.IsUndefined();
  }

  static std::vector<float> readFloats(const ObjectReader& entry, const char* name, size_t length) {
    std::vector<float> values = entry.floats(name);
    if (values.size() != length) refuse(entry.path(name) + " must have " + std::to_string(length) + " values");
    for (const float value : values) {
      if (!std::isfinite(value)) refuse(entry.path(name) + " must be finite");
    }
    return values;
  }

  static std::vector<PositionRange> readRanges(const ObjectReader& entry) {
    const std::vector<int32_t> bounds = entry.integers("ranges");
    if (bounds.size() % 2 != 0) refuse(entry.path("ranges") + " must hold pairs");
    std::vector<PositionRange> ranges;
    for (size_t i = 0; i < bounds.size(); i += 2) {
      if (bounds[i] < 0 || bounds[i + 1] < -1) refuse(entry.path("ranges") + " must not be negative");
      ranges.push_back({bounds[i], bounds[i + 1]});
    }
    return ranges;
  }

  std::shared_ptr<const SaeEncoder> readSae(const ObjectReader& entry) const {
    std::shared_ptr<const SaeEncoder> sae = SaeObject::encoderOf(entry.member("sae"), entry.path("sae"));
    if (sae->embeddingWidth() == model_.facts().embeddingWidth) return sae;
    throw NativeError(ErrorCode::SaeShapeMismatch,
                      entry.path("sae") + " has width " + std::to_string(sae->embeddingWidth()) + ", the model has " +
                          std::to_string(model_.facts().embeddingWidth));
  }

  static void requireFeatures(const std::vector<int32_t>& features, const SaeEncoder& sae, const std::string& path) {
    for (const int32_t feature : features) {
      if (feature >= 0 && feature < sae.featureCount()) continue;
      refuse(path + ": " + std::to_string(feature) + " is not one of " + std::to_string(sae.featureCount()) +
             " features");
    }
  }

  ActivationTerms readTerms(const ObjectReader& entry, size_t width) const {
    ActivationTerms terms;
    terms.sae = readSae(entry);
    terms.features = entry.integers("features");
    requireFeatures(terms.features, *terms.sae, entry.path("features"));
    terms.offsets = readFloats(entry, "offsets", terms.features.size());
    terms.gains = readFloats(entry, "gains", terms.features.size());
    terms.directions = readFloats(entry, "directions", terms.features.size() * width);
    return terms;
  }

  EditCondition readCondition(const ObjectReader& entry) const {
    EditCondition condition;
    condition.sae = readSae(entry);
    condition.feature = {entry.integer("feature", 0, condition.sae->featureCount() - 1)};
    condition.value = static_cast<float>(entry.number("value"));
    const std::string comparison = entry.text("comparison");
    if (comparison == ">") {
      condition.comparison = Comparison::Greater;
    } else if (comparison == ">=") {
      condition.comparison = Comparison::GreaterOrEqual;
    } else if (comparison == "<") {
      condition.comparison = Comparison::Less;
    } else if (comparison == "<=") {
      condition.comparison = Comparison::LessOrEqual;
    } else {
      refuse(entry.path("comparison") + " must be >, >=, < or <=");
    }
    return condition;
  }

  static ReadPoint readPoint(const ObjectReader& entry) {
    const std::string point = entry.text("readPoint");
    if (point == "pre_steering") return ReadPoint::PreSteering;
    if (point == "post_steering") return ReadPoint::PostSteering;
    refuse(entry.path("readPoint") + " must be pre_steering or post_steering");
  }

  SensingPlan readSensing(const ObjectReader& entry) const {
    SensingPlan plan;
    plan.sae = readSae(entry);
    plan.layer = readLayer(entry);
    plan.range = readRange(entry);
    plan.readPoint = readPoint(entry);
    plan.topK = entry.integer("topK", 0, INT32_MAX);
    if (!entry.member("optional").IsUndefined()) plan.optional = entry.boolean("optional");
    plan.subset = !entry.member("features").IsNull();
    if (!plan.subset) return plan;
    plan.features = entry.integers("features");
    requireFeatures(plan.features, *plan.sae, entry.path("features"));
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
