// Where llama.cpp's log lines go. llama.cpp knows one log callback for the whole process and writes lines in pieces;
// the sink joins the pieces of each thread and hands whole lines to JavaScript through a thread-safe function.
#pragma once

#include <napi.h>

#include <string>

namespace steerage {

class LogSink {
 public:
  /// Takes over the process-wide log. JavaScript thread.
  static void install(Napi::Env env, const Napi::Function& onLog);
  /// Stops calling JavaScript; later lines are dropped. JavaScript thread.
  static void remove();
};

/// Collects the error lines that llama.cpp writes on this thread while the object lives: its C interface says only
/// "null" when a load fails, the reason is in the log.
class ErrorLines {
 public:
  ErrorLines();
  ~ErrorLines();
  ErrorLines(const ErrorLines&) = delete;
  ErrorLines& operator=(const ErrorLines&) = delete;
  /// The lines joined by "; ", or `otherwise` when there were none.
  std::string textOr(const std::string& otherwise) const;
  bool contains(const char* part) const { return text_.find(part) != std::string::npos; }
  void add(const std::string& line);

 private:
  std::string text_;
  ErrorLines* outer_;
};

}  // namespace steerage
