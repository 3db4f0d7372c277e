// SPDX-License-Identifier: MIT
//
// Sets are made at their first use, and never let go: no destructor runs when a process ends.
//
// The named sets of patterns: general categories, a few scripts and properties, and what \s, \d, \w
// stand for, as Oniguruma has them (unicode_ranges.inc). All functions are pure.
#ifndef MAINARCH_TEXT_UNICODE_PROPERTY_H_
#define MAINARCH_TEXT_UNICODE_PROPERTY_H_

#include <optional>

#include "absl/strings/string_view.h"
#include "text/char_set.h"

namespace mainarch::text {

// The set of \p{name}; case, spaces, - and _ do not count. None for a name that is not known here.
std::optional<PointRanges> PropertySet(absl::string_view name);

const PointRanges& WordSet();         // \w
const PointRanges& RustWordSet();     // the regex crate's \w, a few code points apart
const PointRanges& SpaceSet();        // \s
const PointRanges& NumericSet();      // Rust's char::is_numeric
const PointRanges& PunctuationSet();  // ASCII's, and that of Unicode 8
const PointRanges& AccentSet();       // marks of Unicode 9
const PointRanges& NonspacingSet();   // Mn of Unicode 8
const PointRanges& CleanedSet();      // what BERT's cleaning takes out

const PointRanges& ComposingSet();  // NFC_Quick_Check is not Yes, in Unicode 9
const PointRanges& ReorderedSet();  // marks that normal forms sort

// How a grapheme goes on (Grapheme_Cluster_Break): Unicode 16, and of what joins 17, which is what Precompiled knows.
const PointRanges& GraphemeJoiningSet();  // Extend (with ZWJ) and SpacingMark
const PointRanges& GraphemeExtendSet();   // of these, all but SpacingMark
const PointRanges& GraphemePrependSet();
const PointRanges& GraphemeControlSet();
const PointRanges& PictureSet();  // Extended_Pictographic

}  // namespace mainarch::text

#endif  // MAINARCH_TEXT_UNICODE_PROPERTY_H_
