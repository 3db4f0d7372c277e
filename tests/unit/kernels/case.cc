// SPDX-License-Identifier: MIT
#include "unit/kernels/case.h"

#include <cmath>

#include "kernels/quant/bf16.h"

namespace mainarch::kernels_test {
namespace {

// Compares element by element; NaN wants NaN, an infinity wants itself.
std::string Compare(const std::vector<double>& got, const std::vector<double>& want,
                    const std::function<double(size_t)>& allowed) {
  if (got.size() != want.size()) {
    return absl::StrCat("has ", got.size(), " elements, expected ", want.size());
  }
  size_t wrong = 0, first = 0;
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
    const double error = std::abs(got[i] - want[i]);
    const double ratio = error / allowed(i);
    if (ratio <= 1) continue;
    if (wrong++ == 0) first = i;
    if (!(ratio <= worst)) worst = ratio;
  }
  if (wrong == 0) return "";
  return absl::StrCat(wrong, " of ", got.size(), " elements off; the first is [", first, "] ",
                      got[first], ", expected ", want[first], " +- ", allowed(first),
                      "; the worst is ", worst, " times the bound");
}

}  // namespace

Expectation NearFloat(const std::string& buffer, std::vector<double> want, Bound bound) {
  return {buffer, [want = std::move(want), bound](absl::Span<const uint8_t> bytes) {
            const std::vector<float> values = FromBytes<float>(bytes);
            return Compare({values.begin(), values.end()}, want, [&](size_t i) {
              return bound.absolute + bound.relative * std::abs(want[i]);
            });
          }};
}

Expectation NearBf16(const std::string& buffer, std::vector<double> want, Bound bound) {
  return {buffer, [want = std::move(want), bound](absl::Span<const uint8_t> bytes) {
            return Compare(FromBf16(FromBytes<uint16_t>(bytes)), want, [&](size_t i) {
              return bound.absolute + bound.relative * std::abs(want[i]);
            });
          }};
}

Expectation WithinFloat(const std::string& buffer, std::vector<double> want,
                        std::vector<double> allowed) {
  return {buffer,
          [want = std::move(want), allowed = std::move(allowed)](absl::Span<const uint8_t> bytes) {
            const std::vector<float> values = FromBytes<float>(bytes);
            return Compare({values.begin(), values.end()}, want,
                           [&](size_t i) { return allowed[i]; });
          }};
}

Expectation Exactly(const std::string& buffer, Bytes want) {
  return {buffer, [want = std::move(want)](absl::Span<const uint8_t> got) -> std::string {
            if (got.size() != want.size()) {
              return absl::StrCat("has ", got.size(), " bytes, expected ", want.size());
            }
            for (size_t i = 0; i < got.size(); ++i) {
              if (got[i] != want[i]) {
                return absl::StrCat("byte ", i, " is ", absl::Hex(got[i]), ", expected ",
                                    absl::Hex(want[i]));
              }
            }
            return "";
          }};
}

Status RunCase(Runner& runner, const Case& test, const ObjectOf& object_of,
               std::map<std::string, Bytes>* contents_out) {
  Addresses addresses;
  std::map<std::string, std::pair<uint64_t, size_t>> placed;
  for (const Buffer& buffer : test.buffers) {
    auto address = runner.Allocate(buffer.device, buffer.home, buffer.initial.size());
    if (!address.ok()) return WithContext(address.status(), test.name);
    addresses.Set(buffer.name, *address);
    placed[buffer.name] = {*address, buffer.initial.size()};
  }
  for (const Buffer& buffer : test.buffers) {
    const Bytes contents = buffer.late ? buffer.late(addresses) : buffer.initial;
    RETURN_IF_ERROR(runner.Write(placed[buffer.name].first, contents));
  }
  for (const std::vector<LaunchSpec>& step : test.steps) {
    std::vector<LaunchRequest> requests;
    for (const LaunchSpec& launch : step) {
      ASSIGN_OR_RETURN(absl::Span<const uint8_t> object, object_of(runner.isa(), launch.kernel));
      LaunchRequest request;
      request.object = object;
      request.kernel = launch.kernel;
      request.device = launch.device;
      request.workgroups = launch.workgroups;
      request.kernarg = launch.kernarg(addresses);
      requests.push_back(std::move(request));
    }
    if (Status status = runner.Launch(requests); !status.ok()) {
      return WithContext(status, test.name);
    }
  }
  for (const Expectation& expectation : test.expectations) {
    const auto [address, bytes] = placed.at(expectation.buffer);
    Bytes contents(bytes);
    RETURN_IF_ERROR(runner.Read(address, absl::MakeSpan(contents)));
    if (const std::string wrong = expectation.check(contents); !wrong.empty()) {
      return Error(Code::kInternal, test.name, " (", runner.isa(), "): buffer ", expectation.buffer,
                   " ", wrong);
    }
    if (contents_out != nullptr) (*contents_out)[expectation.buffer] = std::move(contents);
  }
  return OkStatus();
}

namespace {

// Cases draw some hundred million numbers, and tests are compiled at a level at which no function becomes part of its
// caller by itself.
[[gnu::always_inline]] inline uint64_t NextOf(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

[[gnu::always_inline]] inline double UniformOf(uint64_t* state) {
  return static_cast<double>(NextOf(state) >> 11) * 0x1p-53;
}

}  // namespace

uint64_t Random::Next() { return NextOf(&state_); }

double Random::Uniform() { return UniformOf(&state_); }

double Random::Normal() {
  uint64_t state = state_;
  double sum = -6;  // twelve uniforms: mean 6, variance 1
  for (int i = 0; i < 12; ++i) sum += UniformOf(&state);
  state_ = state;
  return sum;
}

std::vector<uint16_t> Random::Bf16(size_t count, double scale) {
  std::vector<uint16_t> out(count);
  for (uint16_t& x : out) x = quant::Bf16FromFloat(static_cast<float>(Normal() * scale));
  return out;
}

std::vector<float> Random::Floats(size_t count, double scale) {
  std::vector<float> out(count);
  for (float& x : out) x = static_cast<float>(Normal() * scale);
  return out;
}

std::vector<uint8_t> Random::Raw(size_t count) {
  std::vector<uint8_t> out(count);
  for (uint8_t& x : out) x = static_cast<uint8_t>(Next());
  return out;
}

std::vector<double> FromBf16(const std::vector<uint16_t>& values) {
  std::vector<double> out;
  for (uint16_t x : values) out.push_back(quant::FloatFromBf16(x));
  return out;
}

std::vector<Case> AllCases() {
  std::vector<Case> all;
  for (auto make :
       {MemoryCases, RowCases, MatrixCases, ChooseCases, LinkCases, LitmusCases, ResidentCases, RoundCases, ProbeCases,
        FidelityCases, DecoderStepCases, DecoderRouteCases, DecoderMatrixCases, DecoderTallCases, DecoderExpertCases,
        DecoderAttentionCases, DecoderHereCases, DecoderAttendTallCases, DecoderNearCases, DecoderSharedCases, DecoderLatentCases, DecoderReduceCases, DecoderRowCases,
        DecoderHeadCases, StateCases, SampleCases}) {
    for (Case& test : make()) all.push_back(std::move(test));
  }
  return all;
}

}  // namespace mainarch::kernels_test
