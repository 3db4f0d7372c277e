// SPDX-License-Identifier: MIT
#include "cli/launch/fill.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/fd.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"

namespace mainarch::cli {
namespace {

uint64_t Mix(uint64_t x) {  // SplitMix64, as model/synthetic_values.h has it, which is no floor of fuzz targets
  uint64_t z = x + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

template <class T, class Make>
void Each(absl::Span<uint8_t> out, uint64_t seed, Make make) {
  for (uint64_t i = 0; i < out.size() / sizeof(T); ++i) {
    const T value = make(Mix((seed << 32) + i));
    std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
  }
}

template <class T>
void RandomIntegers(const Fill& fill, absl::Span<uint8_t> out) {
  const int64_t low = static_cast<int64_t>(fill.low);
  const uint64_t count = static_cast<uint64_t>(static_cast<int64_t>(fill.high) - low) + 1;
  Each<T>(out, fill.seed, [&](uint64_t x) { return static_cast<T>(low + static_cast<int64_t>(x % count)); });
}

double Between(const Fill& fill, uint64_t x) {
  return fill.low + static_cast<double>(x >> 11) * 0x1p-53 * (fill.high - fill.low);
}

// Magnitudes up to code 0x38, 1.0 of OCP and 0.5 of FNUZ; no negative zero, which FNUZ reads as NaN.
uint8_t RandomFp8(uint64_t x) {
  const uint8_t magnitude = static_cast<uint8_t>((x >> 8) % 0x39);
  return magnitude == 0 ? 0 : static_cast<uint8_t>(magnitude | (x & 0x80));
}

void Random(const Fill& fill, absl::Span<uint8_t> out) {
  const auto real = [&](uint64_t x) { return static_cast<float>(Between(fill, x)); };
  switch (fill.element) {
    case Element::kU8: return RandomIntegers<uint8_t>(fill, out);
    case Element::kI8: return RandomIntegers<int8_t>(fill, out);
    case Element::kU16: return RandomIntegers<uint16_t>(fill, out);
    case Element::kI16: return RandomIntegers<int16_t>(fill, out);
    case Element::kU32: return RandomIntegers<uint32_t>(fill, out);
    case Element::kI32: return RandomIntegers<int32_t>(fill, out);
    case Element::kU64: return RandomIntegers<uint64_t>(fill, out);
    case Element::kI64: return RandomIntegers<int64_t>(fill, out);
    case Element::kF16: return Each<uint16_t>(out, fill.seed, [&](uint64_t x) { return quant::F16FromFloat(real(x)); });
    case Element::kBF16:
      return Each<uint16_t>(out, fill.seed, [&](uint64_t x) { return quant::Bf16FromFloat(real(x)); });
    case Element::kF32: return Each<float>(out, fill.seed, real);
    case Element::kF64: return Each<double>(out, fill.seed, [&](uint64_t x) { return Between(fill, x); });
    case Element::kFp8: return Each<uint8_t>(out, fill.seed, RandomFp8);
  }
}

void Repeat(absl::Span<const uint8_t> pattern, absl::Span<uint8_t> out) {
  for (size_t at = 0; at < out.size(); at += pattern.size()) {
    std::memcpy(out.data() + at, pattern.data(), std::min(pattern.size(), out.size() - at));
  }
}

// The range [at, at + bytes) of a file that stays mapped as long as `mapping`.
StatusOr<absl::Span<const uint8_t>> FileRange(const LaunchFile& launch, int line, const std::string& path,
                                              uint64_t at, uint64_t bytes, Mapping* mapping) {
  StatusOr<Mapping> opened = Mapping::OfFile(PathBeside(launch, path));
  if (!opened.ok()) return WithContext(opened.status(), absl::StrCat(launch.name, ":", line));
  *mapping = std::move(*opened);
  if (at > mapping->size() || bytes > mapping->size() - at) {
    return LaunchError(launch, line, "file ", path, " has ", mapping->size(), " bytes; ", bytes, " are wanted",
                       at > 0 ? absl::StrCat(" from byte ", at) : "");
  }
  return mapping->bytes().subspan(at, bytes);
}

double ElementAt(Element element, const uint8_t* at) {
  const auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return value;
  };
  switch (element) {
    case Element::kU8: case Element::kFp8: return as(uint8_t{});
    case Element::kI8: return as(int8_t{});
    case Element::kU16: return as(uint16_t{});
    case Element::kI16: return as(int16_t{});
    case Element::kU32: return as(uint32_t{});
    case Element::kI32: return as(int32_t{});
    case Element::kU64: return static_cast<double>(as(uint64_t{}));
    case Element::kI64: return static_cast<double>(as(int64_t{}));
    case Element::kF16: return quant::FloatFromF16(as(uint16_t{}));
    case Element::kBF16: return quant::FloatFromBf16(as(uint16_t{}));
    case Element::kF32: return as(float{});
    case Element::kF64: return as(double{});
  }
  return 0;
}

bool Right(double got, double want, const Expectation& e, Comparison* out) {
  if (std::isnan(want) || std::isnan(got)) {
    if (std::isnan(want) && std::isnan(got)) return true;
    out->worst_absolute = out->worst_relative = std::numeric_limits<double>::infinity();
    return false;
  }
  if (got == want) return true;  // infinities too
  const double delta = std::fabs(got - want);
  out->worst_absolute = std::max(out->worst_absolute, delta);
  out->worst_relative = std::max(out->worst_relative, delta / std::fabs(want));
  return delta <= e.absolute + e.relative * std::fabs(want);
}

}  // namespace

std::string PathBeside(const LaunchFile& launch, const std::string& path) {
  const size_t slash = launch.name.rfind('/');
  if (path[0] == '/' || slash == std::string::npos) return path;
  return absl::StrCat(launch.name.substr(0, slash + 1), path);
}

Status FillBuffer(const LaunchFile& launch, const LaunchBuffer& buffer, absl::Span<uint8_t> out) {
  const Fill& fill = buffer.fill;
  switch (fill.kind) {
    case Fill::Kind::kNone:
      return OkStatus();
    case Fill::Kind::kZero:
      std::memset(out.data(), 0, out.size());
      return OkStatus();
    case Fill::Kind::kRandom:
      Random(fill, out);
      return OkStatus();
    case Fill::Kind::kPattern:
      Repeat(fill.pattern, out);
      return OkStatus();
    case Fill::Kind::kFile: {
      Mapping mapping;
      ASSIGN_OR_RETURN(const absl::Span<const uint8_t> bytes,
                       FileRange(launch, buffer.line, fill.path, fill.at, out.size(), &mapping));
      std::memcpy(out.data(), bytes.data(), out.size());
      return OkStatus();
    }
  }
  return OkStatus();
}

StatusOr<Comparison> Compare(const LaunchFile& launch, const Expectation& e, absl::Span<const uint8_t> buffer) {
  const absl::Span<const uint8_t> got = buffer.subspan(e.from, e.bytes.value_or(buffer.size() - e.from));
  Comparison out;
  out.expectation = &e;
  out.sum = SumOf(got);
  if (e.kind == Expectation::Kind::kSum) {
    out.elements = 1;
    out.wrong = out.sum != e.sum;
    if (!out.ok()) out.first = absl::StrFormat("sum %016x, expected %016x", out.sum, e.sum);
    return out;
  }
  Mapping mapping;
  absl::Span<const uint8_t> want;
  if (e.kind == Expectation::Kind::kFile) {
    ASSIGN_OR_RETURN(want, FileRange(launch, e.line, e.path, 0, got.size(), &mapping));
    if (mapping.size() != got.size()) {
      return LaunchError(launch, e.line, "file ", e.path, " has ", mapping.size(), " bytes; ", got.size(),
                         " are compared");
    }
  }
  const uint32_t size = BytesOf(e.element);
  out.elements = got.size() / size;
  for (uint64_t i = 0; i < out.elements; ++i) {
    const double is = ElementAt(e.element, &got[i * size]);
    const double should = want.empty() ? e.value : ElementAt(e.element, &want[i * size]);
    // 64-bit integers are more than a double holds: equal bytes are right, whatever they look like.
    if (!want.empty() && std::memcmp(&got[i * size], &want[i * size], size) == 0) continue;
    if (Right(is, should, e, &out) && !(IsInteger(e.element) && size == 8 && is == should && !want.empty())) continue;
    if (out.wrong++ == 0) {
      out.first = absl::StrFormat("element %u is %.9g, expected %.9g", i, is, should);
    }
  }
  return out;
}

uint64_t SumOf(absl::Span<const uint8_t> bytes) { return XXH64(bytes.data(), bytes.size(), 0); }

}  // namespace mainarch::cli
