// SPDX-License-Identifier: MIT
//
// Writes GGUF files, right ones and wrong ones: nothing is checked here.
#ifndef MAINARCH_TESTS_SUPPORT_GGUF_WRITER_H_
#define MAINARCH_TESTS_SUPPORT_GGUF_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace mainarch::test {

template <class T>
std::string LittleEndian(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}
inline std::string GgufText(absl::string_view text) {
  return LittleEndian<uint64_t>(text.size()) + std::string(text);
}

struct GgufWriter {
  uint32_t version = 3;
  uint64_t alignment = 32;
  std::vector<std::string> keys, tensors;  // as they stand in the file
  std::string data;

  // `value` as it stands in the file; the types' numbers are the format's.
  void Key(absl::string_view key, uint32_t type, const std::string& value) {
    keys.push_back(GgufText(key) + LittleEndian(type) + value);
  }
  void U32(absl::string_view key, uint32_t value) { Key(key, 4, LittleEndian(value)); }
  void F32(absl::string_view key, float value) { Key(key, 6, LittleEndian(value)); }
  void Bool(absl::string_view key, bool value) { Key(key, 7, std::string(1, value ? '\1' : '\0')); }
  void Text(absl::string_view key, absl::string_view value) { Key(key, 8, GgufText(value)); }
  void Array(absl::string_view key, uint32_t type, uint64_t count, const std::string& values) {
    Key(key, 9, LittleEndian(type) + LittleEndian(count) + values);
  }
  void Texts(absl::string_view key, const std::vector<std::string>& values) {
    std::string all;
    for (const std::string& value : values) all += GgufText(value);
    Array(key, 8, values.size(), all);
  }
  template <class T>
  void Numbers(absl::string_view key, uint32_t type, const std::vector<T>& values) {
    std::string all;
    for (const T& value : values) all += LittleEndian(value);
    Array(key, type, values.size(), all);
  }
  // Innermost dimension first, as the format has them.
  void Tensor(absl::string_view name, const std::vector<uint64_t>& dimensions, uint32_t type,
              absl::string_view bytes) {
    Describe(name, dimensions, type, data.size());
    data.append(bytes.data(), bytes.size());
    data.resize((data.size() + alignment - 1) / alignment * alignment);
  }
  void Describe(absl::string_view name, const std::vector<uint64_t>& dimensions, uint32_t type,
                uint64_t offset) {
    std::string tensor = GgufText(name) + LittleEndian(static_cast<uint32_t>(dimensions.size()));
    for (const uint64_t size : dimensions) tensor += LittleEndian(size);
    tensors.push_back(tensor + LittleEndian(type) + LittleEndian(offset));
  }

  std::string Done() const {
    std::string file = "GGUF" + LittleEndian(version) + LittleEndian<uint64_t>(tensors.size()) +
                       LittleEndian<uint64_t>(keys.size());
    for (const std::string& key : keys) file += key;
    for (const std::string& tensor : tensors) file += tensor;
    file.resize((file.size() + alignment - 1) / alignment * alignment);
    return file + data;
  }
};

}  // namespace mainarch::test

#endif  // MAINARCH_TESTS_SUPPORT_GGUF_WRITER_H_
