// SPDX-License-Identifier: MIT
//
// Making small safetensors files and checkpoint directories by hand, good and bad ones.
#ifndef MAINARCH_TESTS_SUPPORT_CHECKPOINT_FILES_H_
#define MAINARCH_TESTS_SUPPORT_CHECKPOINT_FILES_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace mainarch::test {

struct FileTensor {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};

// A header of any text and any data behind it.
inline std::string RawSafetensors(const std::string& header, const std::string& data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(uint64_t{header.size()} >> (8 * i));
  return out + header + data;
}

inline std::string Safetensors(const std::vector<FileTensor>& tensors) {
  std::string header = R"({"__metadata__":{"format":"pt"})", data;
  for (const FileTensor& tensor : tensors) {
    header += ",\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      header += (i > 0 ? "," : "") + std::to_string(tensor.shape[i]);
    }
    header += "],\"data_offsets\":[" + std::to_string(data.size()) + ",";
    data += tensor.bytes;
    header += std::to_string(data.size()) + "]}";
  }
  header += "}";
  return RawSafetensors(header, data);
}

inline bool WriteFile(const std::string& path, const std::string& content) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  return std::fclose(file) == 0 && written;
}

// The bytes of a list of numbers.
template <class T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

}  // namespace mainarch::test

// A status is an error with this code and a message that contains every one of `parts`, is one line
// and holds no control characters. For use inside TEST.
#define CHECK_REFUSED(expr, expected_code, ...)                                                  \
  do {                                                                                           \
    const ::mainarch::Status check_refused_ = ::mainarch::test::JustStatus(expr);                \
    CHECK(!check_refused_.ok());                                                                 \
    const std::string check_text_(check_refused_.message());                                     \
    for (const char* check_part_ : std::initializer_list<const char*>{__VA_ARGS__}) {            \
      if (check_text_.find(check_part_) == std::string::npos) {                                  \
        test_context.Fail(__FILE__, __LINE__,                                                    \
                          "no \"" + std::string(check_part_) + "\" in \"" + check_text_ + "\""); \
        return;                                                                                  \
      }                                                                                          \
    }                                                                                            \
    CHECK(check_text_.find('\n') == std::string::npos);                                          \
    if (::mainarch::CodeOf(check_refused_) != (expected_code)) {                                 \
      test_context.Fail(__FILE__, __LINE__, "another code: " + check_text_);                     \
      return;                                                                                    \
    }                                                                                            \
  } while (0)

#include "base/status.h"

namespace mainarch::test {
inline Status JustStatus(const Status& status) { return status; }
template <class T>
Status JustStatus(const StatusOr<T>& result) {
  return result.status();
}
}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_CHECKPOINT_FILES_H_
