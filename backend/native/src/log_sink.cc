#include "log_sink.h"

#include <memory>
#include <mutex>

#include "llama.h"
#include "log.h"

namespace steerage {

namespace {

struct LogLine {
  const char* level;
  std::string text;
};

std::mutex sinkMutex;
std::unique_ptr<Napi::ThreadSafeFunction> sinkFunction;

thread_local ErrorLines* innermost = nullptr;
thread_local std::string unfinished;
thread_local ggml_log_level unfinishedLevel = GGML_LOG_LEVEL_INFO;

const char* levelName(ggml_log_level level) {
  switch (level) {
    case GGML_LOG_LEVEL_ERROR: return "error";
    case GGML_LOG_LEVEL_WARN: return "warn";
    case GGML_LOG_LEVEL_INFO: return "info";
    default: return "debug";
  }
}

void deliver(ggml_log_level level, std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  if (text.empty()) return;
  if (level == GGML_LOG_LEVEL_ERROR && innermost != nullptr) innermost->add(text);
  const std::lock_guard<std::mutex> lock(sinkMutex);
  if (!sinkFunction) return;
  auto* line = new LogLine{levelName(level), std::move(text)};
  const napi_status status = sinkFunction->NonBlockingCall(line, [](Napi::Env env, Napi::Function onLog, LogLine* data) {
    const std::unique_ptr<LogLine> owned(data);
    if (env == nullptr || onLog.IsEmpty()) return;
    onLog.Call({Napi::String::New(env, owned->level), Napi::String::New(env, owned->text)});
  });
  if (status != napi_ok) delete line;
}

void receive(ggml_log_level level, const char* text, void*) {
  try {
    if (level != GGML_LOG_LEVEL_CONT) {
      if (!unfinished.empty()) deliver(unfinishedLevel, std::move(unfinished));
      unfinished.clear();
      unfinishedLevel = level;
    }
    unfinished += text;
    if (unfinished.empty() || unfinished.back() != '\n') return;
    deliver(unfinishedLevel, std::move(unfinished));
    unfinished.clear();
  } catch (...) {
    // A log line is not worth a crash: llama.cpp is plain C at this border.
    unfinished.clear();
  }
}

}  // namespace

void LogSink::install(Napi::Env env, const Napi::Function& onLog) {
  auto next = std::make_unique<Napi::ThreadSafeFunction>(
      Napi::ThreadSafeFunction::New(env, onLog, "steerage native log", 0, 1));
  next->Unref(env);
  {
    const std::lock_guard<std::mutex> lock(sinkMutex);
    if (sinkFunction) sinkFunction->Release();
    sinkFunction = std::move(next);
  }
  llama_log_set(receive, nullptr);
  // libllama-common has a log of its own that writes to the terminal from a thread: warnings there repeat what its
  // exceptions say.
  common_log_set_verbosity_thold(-1);
}

void LogSink::remove() {
  const std::lock_guard<std::mutex> lock(sinkMutex);
  if (sinkFunction) sinkFunction->Release();
  sinkFunction.reset();
}

ErrorLines::ErrorLines() : outer_(innermost) { innermost = this; }

ErrorLines::~ErrorLines() { innermost = outer_; }

void ErrorLines::add(const std::string& line) {
  if (!text_.empty()) text_ += "; ";
  text_ += line;
}

std::string ErrorLines::textOr(const std::string& otherwise) const { return text_.empty() ? otherwise : text_; }

}  // namespace steerage
