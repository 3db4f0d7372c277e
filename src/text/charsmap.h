// SPDX-License-Identifier: MIT
//
// SentencePiece's precompiled table of replacements ("precompiled_charsmap"): a double array of
// prefixes (darts-clone) and the texts they become, as the `tokenizers` package applies it: a
// grapheme of up to five bytes by its shortest prefix in the table, else its characters one by one.
// The bytes are not trusted. Immutable once made.
#ifndef MAINARCH_TEXT_CHARSMAP_H_
#define MAINARCH_TEXT_CHARSMAP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/status.h"

namespace mainarch::text {

class Charsmap {
 public:
  static constexpr size_t kMaxBytes = size_t{16} << 20;

  // The table's bytes: a 32-bit length, the array, and texts that end with zero bytes.
  static StatusOr<std::shared_ptr<const Charsmap>> Create(absl::string_view bytes);

  // `utf8` must be valid, and what is returned is.
  std::string Apply(absl::string_view utf8) const;

 private:
  Charsmap() = default;

  // Whether some prefix of `text` is in the table, and what the shortest becomes.
  bool Find(absl::string_view text, absl::string_view* becomes) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_CHARSMAP_H_
