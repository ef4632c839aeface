#include "account_board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "native_error.h"

namespace steerage {

namespace {

constexpr uint32_t kMagic = 0x42415453;  // "STAB" in the file
constexpr uint32_t kVersion = 1;
// Four times what can run at once, so that an ended job's record stays while its end travels to the host.
constexpr int kRecords = 1024;

constexpr uint32_t kFree = 0;
constexpr uint32_t kRunning = 1;
constexpr uint32_t kEnded = 2;

}  // namespace

struct AccountBoard::Header {
  uint32_t magic;
  uint32_t version;
  uint32_t records;
  std::atomic<uint32_t> unrecorded;
  char reserved[112];
};

AccountBoard::AccountBoard(const std::string& path) {
  static_assert(sizeof(Header) == 128, "backend/ports/account-board.ts reads a header of 128 bytes");
  const size_t bytes = sizeof(Header) + kRecords * sizeof(Record);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  void* mapping = MAP_FAILED;
  int reason = errno;
  if (file >= 0) {
    // Space is taken now: a write to a page that the disk has no room for would end the process.
    reason = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
    if (reason == 0) {
      mapping = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      reason = errno;
    }
    ::close(file);
  }
  if (mapping == MAP_FAILED) {
    throw NativeError(ErrorCode::InvalidArgument,
                      "the account board " + path + " cannot be made: " + std::strerror(reason));
  }
  mapping_ = mapping;
  header_ = static_cast<Header*>(mapping);
  records_ = reinterpret_cast<Record*>(header_ + 1);
  header_->version = kVersion;
  header_->records = kRecords;
  header_->magic = kMagic;
}

AccountBoard::~AccountBoard() { ::munmap(mapping_, sizeof(Header) + kRecords * sizeof(Record)); }

AccountBoard::Record* AccountBoard::claim(const std::string& label, uint32_t promptTokens, uint32_t keepTokens) {
  for (int tried = 0; label.size() <= sizeof(Record::label) && tried < kRecords; tried++) {
    Record* record = records_ + next_;
    next_ = (next_ + 1) % kRecords;
    if (record->state.load(std::memory_order_acquire) == kRunning) continue;
    // Nobody may read a mixture of two jobs, should the process end in between.
    record->state.store(kFree, std::memory_order_release);
    record->promptTokens = promptTokens;
    record->keepTokens = keepTokens;
    record->computedPrompt.store(0, std::memory_order_relaxed);
    record->computedCompletion.store(0, std::memory_order_relaxed);
    record->labelBytes = static_cast<uint32_t>(label.size());
    std::memcpy(record->label, label.data(), label.size());
    record->state.store(kRunning, std::memory_order_release);
    return record;
  }
  header_->unrecorded.fetch_add(1);
  return nullptr;
}

void AccountBoard::release(Record* record) { record->state.store(kEnded, std::memory_order_release); }

AccountBoard::Record* AccountBoard::at(int place) const {
  return place >= 0 && place < kRecords ? records_ + place : nullptr;
}

}  // namespace steerage
