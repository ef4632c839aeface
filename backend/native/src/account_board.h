// What each running job has computed so far, in a file that outlives this process: when the engine is killed, its host
// reads there to the last finished step what it owes an account of. Layout: backend/ports/account-board.ts.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace steerage {

class AccountBoard {
 public:
  struct Record {
    std::atomic<uint32_t> state;
    /// Prompt tokens that the job is charged for, reused ones included; 0 for a further choice on the same prompt.
    uint32_t promptTokens;
    uint32_t keepTokens;
    std::atomic<uint32_t> computedPrompt;
    std::atomic<uint32_t> computedCompletion;
    uint32_t labelBytes;
    char label[104];
  };
  static_assert(sizeof(Record) == 128, "backend/ports/account-board.ts reads records of 128 bytes");

  /// Makes the file, or empties it. Throws `invalid_argument` with the reason when it cannot be made.
  explicit AccountBoard(const std::string& path);
  ~AccountBoard();
  AccountBoard(const AccountBoard&) = delete;
  AccountBoard& operator=(const AccountBoard&) = delete;

  /// A record for a job that is about to start. Null when the label is too long or every record belongs to a running
  /// job; the board then says of itself that it is incomplete. One thread at a time; the rest is for any thread.
  Record* claim(const std::string& label, uint32_t promptTokens, uint32_t keepTokens);
  /// Keeps what it says until the place is needed: the host may not have heard of the end yet.
  static void release(Record* record);

  /// By place in the file; null for a place that is not there.
  Record* at(int place) const;
  int placeOf(const Record* record) const { return static_cast<int>(record - records_); }

 private:
  struct Header;
  void* mapping_ = nullptr;
  Header* header_ = nullptr;
  Record* records_ = nullptr;
  int next_ = 0;
};

}  // namespace steerage
