#include "step_events_writer.h"

#include "js_values.h"

namespace steerage {

namespace {

Napi::Value writePrompt(Napi::Env env, const PromptProgress& progress) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("jobId", progress.jobId);
  out.Set("computedTokens", progress.computedTokens);
  return out;
}

Napi::Object writeLogprobs(Napi::Env env, const TokenLogprobs& logprobs) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("jobId", logprobs.jobId);
  out.Set("logprob", logprobs.logprob);
  out.Set("topTokens", toInt32Array(env, logprobs.topTokens));
  out.Set("topLogprobs", toFloat32Array(env, logprobs.topLogprobs));
  return out;
}

Napi::Value writePromptLogprobs(Napi::Env env, const PromptLogprobs& logprobs) {
  Napi::Object out = writeLogprobs(env, logprobs.chance);
  out.Set("position", logprobs.position);
  return out;
}

Napi::Value writeSensed(Napi::Env env, const SensedRows& rows) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("jobId", rows.jobId);
  out.Set("planIndex", rows.planIndex);
  out.Set("positions", toInt32Array(env, rows.positions));
  out.Set("tokens", toInt32Array(env, rows.tokens));
  out.Set("counts", toInt32Array(env, rows.counts));
  out.Set("indices", toInt32Array(env, rows.indices));
  out.Set("values", toFloat32Array(env, rows.values));
  return out;
}

Napi::Value writeCaptured(Napi::Env env, const CapturedRows& rows) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("jobId", rows.jobId);
  out.Set("planIndex", rows.planIndex);
  out.Set("positions", toInt32Array(env, rows.positions));
  out.Set("rows", toFloat32Array(env, rows.rows));
  return out;
}

constexpr const char* kAssemble =
    "(records, text, prompts, logprobs, promptLogprobs, sensed, captured, finished) =>"
    " ({ records, text, prompts, logprobs, promptLogprobs, sensed, captured, finished })";

const char* reasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::EndOfGeneration: return "end_of_generation";
    case FinishReason::StopString: return "stop_string";
    case FinishReason::Length: return "length";
    case FinishReason::Cancelled: return "cancelled";
    case FinishReason::Failed: return "failed";
  }
  return "failed";
}

Napi::Value writeFinished(Napi::Env env, const JobFinished& finished) {
  const bool failed = finished.reason == FinishReason::Failed;
  Napi::Object out = Napi::Object::New(env);
  out.Set("jobId", finished.jobId);
  out.Set("reason", reasonName(finished.reason));
  out.Set("stopIndex", finished.stopIndex);
  out.Set("textEndBytes", static_cast<double>(finished.textEndBytes));
  out.Set("computedPromptTokens", finished.computedPromptTokens);
  out.Set("computedCompletionTokens", finished.computedCompletionTokens);
  out.Set("editedRows", toInt32Array(env, finished.editedRows));
  out.Set("errorCode", failed ? Napi::Value(Napi::String::New(env, errorCodeName(finished.errorCode))) : env.Null());
  out.Set("errorMessage", failed ? Napi::Value(Napi::String::New(env, finished.errorMessage)) : env.Null());
  return out;
}

}  // namespace

StepEventsWriter::StepEventsWriter(Napi::Env env) {
  Napi::Array empty = Napi::Array::New(env, 0);
  empty.Freeze();
  emptyList_ = Napi::Persistent(empty.As<Napi::Object>());
  assemble_ = Napi::Persistent(env.RunScript(kAssemble).As<Napi::Function>());
}

template <typename Item, typename Convert>
Napi::Value StepEventsWriter::list(Napi::Env env, const std::vector<Item>& items, Convert convert) {
  if (items.empty()) return emptyList_.Value();
  Napi::Array array = Napi::Array::New(env, items.size());
  for (uint32_t i = 0; i < items.size(); i++) array.Set(i, convert(env, items[i]));
  return array;
}

Napi::Value StepEventsWriter::write(Napi::Env env, const StepEvents& events) {
  return assemble_.Call({
      toInt32Array(env, events.records),
      toUint8Array(env, events.text),
      list(env, events.prompts, writePrompt),
      list(env, events.logprobs, writeLogprobs),
      list(env, events.promptLogprobs, writePromptLogprobs),
      list(env, events.sensed, writeSensed),
      list(env, events.captured, writeCaptured),
      list(env, events.finished, writeFinished),
  });
}

}  // namespace steerage
