// SPDX-License-Identifier: MIT
//
// Python's two ways to put values into a text: "%s" % value, and "{}".format(value).
#ifndef MAINARCH_TEXT_JINJA_FORMAT_H_
#define MAINARCH_TEXT_JINJA_FORMAT_H_

#include "text/jinja/builtin.h"
#include "text/jinja/value.h"

namespace mainarch::text::jinja {

// `values` is a tuple of values, a dict for "%(name)s", or one value. Markup escapes what it takes
// in.
Value FormatPercent(Heap* heap, const Value& format, const Value& values);

// Fields within a format specification ("{:{width}}") are refused.
Value FormatBraces(Heap* heap, const Value& format, const Arguments& arguments);

}  // namespace mainarch::text::jinja

#endif  // MAINARCH_TEXT_JINJA_FORMAT_H_
