// SPDX-License-Identifier: MIT
//
// Vectors of texts against the package sentence-transformers (embed_goldens.py), with the files that it
// writes beside a checkpoint; and the same bits whatever the batch, the steps and the ranks.
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "backend/backend.h"
#include "base/fd.h"
#include "decode/embed.h"
#include "file/json.h"
#include "golden/golden.h"
#include "model/pooling.h"
#include "support/gpus.h"
#include "support/test.h"

using namespace mainarch;
using namespace mainarch::decode;

namespace {

using Texts = std::vector<std::vector<uint32_t>>;
using Vectors = std::vector<std::vector<float>>;

struct Case {
  std::string directory;  // the trained checkpoint, and the package's files
  std::string prompt;
  uint32_t skip = 0;
  Texts tokens;
  Vectors vectors;
};

void Write(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// Beside links to the trained checkpoint's files.
std::string CheckpointWith(const std::string& name, simdjson::dom::object files) {
  const std::filesystem::path directory = test::ScratchDirectory() + "/" + name;
  std::filesystem::create_directories(directory);
  for (const char* file : {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}) {
    std::filesystem::create_symlink(test::SourcePath(absl::StrCat("tests/golden/trained/", file)), directory / file);
  }
  for (const auto file : files) Write(directory / file.key, std::string_view(file.value));
  return directory.string();
}

Case CaseOf(const std::string& name) {
  Case out;
  const auto text = ReadWholeFile(test::SourcePath("tests/golden/data/embed.json"), 1 << 20);
  simdjson::dom::parser parser;
  const simdjson::dom::element root = parser.parse(simdjson::padded_string(text.ok() ? *text : "{}"));
  const simdjson::dom::object found = root["cases"][name];
  out.directory = CheckpointWith(name, found["files"]);
  if (!found["prompt"].is_null()) out.prompt = std::string(std::string_view(found["prompt"]));
  out.skip = static_cast<uint32_t>(uint64_t(found["skip"]));
  for (const auto tokens : simdjson::dom::array(found["tokens"])) {
    out.tokens.emplace_back();
    for (const uint64_t token : simdjson::dom::array(tokens)) {
      out.tokens.back().push_back(static_cast<uint32_t>(token));
    }
  }
  for (const auto vector : simdjson::dom::array(found["vectors"])) {
    out.vectors.emplace_back();
    for (const double x : simdjson::dom::array(vector)) {
      out.vectors.back().push_back(static_cast<float>(x));
    }
  }
  return out;
}

struct Setup {
  std::string device = "cpu";
  uint32_t sequences = 4, step_tokens = 64;
  uint64_t kv_tokens = 0;
  bool prefixes = true;
};

StatusOr<Vectors> Run(const std::string& directory, const Setup& setup, const Texts& texts,
                      const EmbedOptions& options) {
  backend::BackendOptions wanted;
  wanted.device = setup.device;
  wanted.threads = 2;
  ASSIGN_OR_RETURN(auto backend, backend::CreateBackend(wanted));
  ASSIGN_OR_RETURN(const auto model, model::Model::Load(std::move(backend), directory, {}, model::Part::kVectors));
  EngineOptions o;
  o.max_sequences = setup.sequences;
  o.max_sequence_tokens = 300;
  o.max_step_tokens = setup.step_tokens;
  o.kv_tokens = setup.kv_tokens;
  o.kv_type = backend::KvType::kF32;
  o.prefix_cache = setup.prefixes;
  ASSIGN_OR_RETURN(const auto engine, Engine::Create(model, o));
  ASSIGN_OR_RETURN(const uint32_t size, VectorSize(engine->info(), options));
  const std::vector<absl::Span<const uint32_t>> spans(texts.begin(), texts.end());
  std::vector<float> out(texts.size() * size);
  RETURN_IF_ERROR(Embed(engine.get(), spans, options, out.data()));
  if (engine->info().sequences != 0) return Error(Code::kInternal, "a sequence was left open");
  Vectors vectors;
  for (size_t i = 0; i < texts.size(); ++i) {
    vectors.emplace_back(out.data() + i * size, out.data() + (i + 1) * size);
  }
  return vectors;
}

// The largest difference of two numbers, beside the largest number.
double Off(const Vectors& a, const Vectors& b) {
  double off = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) {
      off = std::max(off, std::abs(double{a[i][j]} - double{b[i][j]}));
      largest = std::max(largest, std::abs(double{b[i][j]}));
    }
  }
  return off / largest;
}

StatusOr<EmbedOptions> OptionsOf(const Case& c) {
  ASSIGN_OR_RETURN(const model::PoolingConfig pooling, model::ReadPooling(c.directory));
  EmbedOptions options;
  options.pooling = pooling.pooling;
  options.normalise = pooling.normalise;
  if (!pooling.include_prompt) options.skip = c.skip;
  if (!pooling.stated) return Error(Code::kInternal, "modules.json was not seen");
  return options;
}

const char* const kCases[] = {"last", "mean", "mean_without_prompt", "first"};

}  // namespace

TEST(vectors_are_those_of_sentence_transformers) {
  for (const char* name : kCases) {
    const Case c = CaseOf(name);
    CHECK_EQ(c.tokens.size(), 4u);
    const auto options = OptionsOf(c);
    CHECK_OK(options);
    const auto vectors = Run(c.directory, {}, c.tokens, *options);
    CHECK_OK(vectors);
    const double off = Off(*vectors, c.vectors);
    std::printf("# %s: %.1e\n", name, off);
    CHECK_LT(off, 1e-5);
  }
}

TEST(files_say_pooling_prompts_and_length) {
  const Case c = CaseOf("mean_without_prompt");
  const auto read = model::ReadPooling(c.directory);
  CHECK_OK(read);
  CHECK(read->stated && read->pooling == model::Pooling::kMean && read->normalise && !read->include_prompt);
  CHECK_EQ(read->prompts.size(), 2u);
  CHECK_EQ(read->prompts[1].first, std::string("query"));
  CHECK_EQ(read->prompts[1].second, std::string("And he said unto them:"));
  const auto none = model::ReadPooling(test::SourcePath("tests/golden/trained"));
  CHECK_OK(none);
  CHECK(!none->stated && none->pooling == model::Pooling::kLast && none->normalise && none->prompts.empty());
}

// A text's vector is the same alone and among others, in steps of 7 and of 64 tokens, with pages taken away
// from it, found in the prefix cache, on 1, 2 and 4 ranks.
TEST(bits_do_not_depend_on_what_is_beside) {
  for (const char* name : kCases) {
    const Case c = CaseOf(name);
    const auto options = OptionsOf(c);
    CHECK_OK(options);
    const auto all = Run(c.directory, {}, c.tokens, *options);
    CHECK_OK(all);
    const Setup setups[] = {{"cpu", 1, 7}, {"cpu", 2, 64, 0, false}, {"cpu", 4, 33, 256}, {"cpu:2"}, {"cpu:4", 3, 16}};
    for (const Setup& setup : setups) {
      const auto again = Run(c.directory, setup, c.tokens, *options);
      CHECK_OK(again);
      CHECK(*again == *all);
    }
    for (size_t i = 0; i < c.tokens.size(); ++i) {
      const auto one = Run(c.directory, {}, {c.tokens[i], c.tokens[i]}, *options);
      CHECK_OK(one);
      CHECK((*one)[0] == (*all)[i] && (*one)[1] == (*all)[i]);
    }
  }
}

TEST(gpus_give_them_too) {
  NEEDS_GPUS();
  const Case c = CaseOf("mean");
  const auto options = OptionsOf(c);
  CHECK_OK(options);
  const Texts texts(c.tokens.begin(), c.tokens.begin() + 3);
  const Vectors wanted(c.vectors.begin(), c.vectors.begin() + 3);
  for (const char* chip : {"gfx942", "gfx950"}) {
    const auto one = Run(c.directory, {absl::StrCat("sim:", chip)}, texts, *options);
    CHECK_OK(one);
    CHECK_LT(Off(*one, wanted), 1e-4);
    const auto two = Run(c.directory, {absl::StrCat("sim:", chip, "x2"), 2, 7}, texts, *options);
    CHECK_OK(two);
    CHECK(*two == *one);
  }
}

// Dimensions that are cut are the first of the whole vector, at a length of one again.
TEST(fewer_dimensions) {
  const Case c = CaseOf("last");
  EmbedOptions options;
  const auto whole = Run(c.directory, {}, c.tokens, options);
  options.dimensions = 32;
  const auto cut = Run(c.directory, {}, c.tokens, options);
  CHECK_OK(whole);
  CHECK_OK(cut);
  for (size_t i = 0; i < cut->size(); ++i) {
    CHECK_EQ((*cut)[i].size(), 32u);
    double squares = 0, length = 0;
    for (size_t j = 0; j < 32; ++j) {
      squares += double{(*whole)[i][j]} * double{(*whole)[i][j]};
      length += double{(*cut)[i][j]} * double{(*cut)[i][j]};
    }
    CHECK_LT(std::abs(length - 1), 1e-6);
    for (size_t j = 0; j < 32; ++j) {
      CHECK_LT(std::abs(double{(*cut)[i][j]} - double{(*whole)[i][j]} / std::sqrt(squares)), 1e-6);
    }
  }
  options.dimensions = 129;
  CHECK_EQ(static_cast<int>(CodeOf(Run(c.directory, {}, c.tokens, options).status())),
           static_cast<int>(Code::kInvalidArgument));
}

// A file of the model without its head, as Qwen3-Embedding is published: no "model." before the names.
TEST(a_checkpoint_without_its_head) {
  const Case c = CaseOf("last");
  const auto file = ReadWholeFile(test::SourcePath("tests/golden/trained/model.safetensors"), size_t{1} << 28);
  CHECK_OK(file);
  uint64_t length;
  std::memcpy(&length, file->data(), 8);
  std::string header = absl::StrReplaceAll(file->substr(8, length), {{"\"model.", "\""}});
  header.resize(length, ' ');
  const std::string directory = test::ScratchDirectory() + "/headless";
  std::filesystem::create_directories(directory);
  Write(directory + "/model.safetensors", absl::StrCat(file->substr(0, 8), header, file->substr(8 + length)));
  std::filesystem::copy(test::SourcePath("tests/golden/trained/config.json"), directory + "/config.json");
  const auto vectors = Run(directory, {}, c.tokens, {});
  CHECK_OK(vectors);
  CHECK_LT(Off(*vectors, c.vectors), 1e-5);
}

// Of a text's mean and of what is skipped, each by its own number of tokens, the whole mean is made.
TEST(means_that_skip_are_of_what_is_left) {
  const Case c = CaseOf("mean");
  const std::vector<uint32_t>& text = c.tokens[0];
  const uint32_t skipped = 2;
  CHECK_LT(skipped, text.size());
  EmbedOptions options;
  options.pooling = model::Pooling::kMean;
  options.normalise = false;
  const auto whole = Run(c.directory, {}, {text, {text.begin(), text.begin() + skipped}}, options);
  options.skip = skipped;
  const auto rest = Run(c.directory, {}, {text}, options);
  CHECK_OK(whole);
  CHECK_OK(rest);
  const double n = static_cast<double>(text.size());
  Vectors wanted(1);
  for (size_t i = 0; i < (*whole)[0].size(); ++i) {
    wanted[0].push_back(static_cast<float>((double{(*whole)[0][i]} * n - double{(*whole)[1][i]} * skipped) / (n - skipped)));
  }
  CHECK_LT(Off(*rest, wanted), 1e-6);
}

// Texts find what others of the same salt have run, and of another's nothing.
TEST(salts_keep_texts_apart) {
  const Case c = CaseOf("last");
  auto backend = backend::CreateBackend({});
  CHECK_OK(backend);
  const auto model = model::Model::Load(std::move(*backend), c.directory, {}, model::Part::kVectors);
  CHECK_OK(model);
  EngineOptions o;
  o.max_sequence_tokens = 300;
  o.prefix_cache = true;
  const auto engine = Engine::Create(*model, o);
  CHECK_OK(engine);
  const std::vector<uint32_t> text(64, 7);
  const absl::Span<const uint32_t> texts[] = {text};
  std::vector<float> out((*engine)->info().vectors);
  uint64_t hits = 0;
  for (const auto& [salt, found] : {std::pair<uint64_t, uint64_t>{1, 0}, {1, 1}, {2, 0}, {2, 1}, {1, 1}}) {
    EmbedOptions options;
    options.prefix_salt = salt;
    CHECK_OK(Embed(engine->get(), texts, options, out.data()));
    const uint64_t now = (*engine)->info().prefix_hits;
    CHECK_EQ(now - hits, found);
    hits = now;
  }
}

TEST(texts_that_cannot_be) {
  const Case c = CaseOf("mean");
  EmbedOptions options;
  CHECK(absl::StrContains(Run(c.directory, {}, {{3}, {}}, options).status().message(), "text 1 has 0 tokens"));
  options.pooling = model::Pooling::kMean;
  options.skip = 1;
  CHECK(absl::StrContains(Run(c.directory, {}, {{3}}, options).status().message(), "all to be skipped"));
  CHECK_EQ(static_cast<int>(CodeOf(Run(c.directory, {}, {std::vector<uint32_t>(301, 3)}, options).status())),
           static_cast<int>(Code::kKvFull));
}

// What is wrong is said with the file and the key; nothing outside of the checkpoint is read.
TEST(hostile_files) {
  const auto refused = [](const char* file, const char* text, Code code, const char* word) {
    const std::string directory = test::ScratchDirectory() + "/hostile";
    std::filesystem::remove_all(directory);
    Write(directory + "/modules.json",
          R"([{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": "1_Pooling"}])");
    Write(directory + "/1_Pooling/config.json", R"({"pooling_mode_lasttoken": true})");
    if (!model::ReadPooling(directory).ok()) return false;
    Write(directory + "/" + file, text);
    const Status status = model::ReadPooling(directory).status();
    if (CodeOf(status) == code && absl::StrContains(status.message(), word) &&
        absl::StrContains(status.message(), file)) {
      return true;
    }
    std::printf("# %s: %s\n", text, std::string(status.message()).c_str());
    return false;
  };
  const char* const modules = "modules.json";
  const char* const pooling = "1_Pooling/config.json";
  const char* const prompts = "config_sentence_transformers.json";
  CHECK(refused(modules, "{}", Code::kBadModel, "array"));
  CHECK(refused(modules, "[3]", Code::kBadModel, "[0]"));
  CHECK(refused(modules, "[", Code::kBadModel, "modules.json"));
  CHECK(refused(modules, "[]", Code::kUnsupported, "Pooling"));
  CHECK(refused(modules, R"([{"path": ""}])", Code::kBadModel, "type"));
  CHECK(refused(modules, R"([{"type": "m.Pooling", "path": "1_Pooling"}, {"type": "m.Pooling", "path": "1_Pooling"}])",
                Code::kUnsupported, "[1].type"));
  CHECK(refused(modules, R"([{"type": "m.Dense", "path": "2_Dense"}])", Code::kUnsupported, "m.Dense"));
  CHECK(refused(modules, R"([{"type": "m.Transformer", "path": "0_T"}])", Code::kUnsupported, "0_T"));
  for (const char* path : {"", "..", "/etc", "a/../b", ".", "a\\u0000b"}) {
    CHECK(refused(modules, absl::StrCat(R"([{"type": "m.Pooling", "path": ")", path, "\"}]").c_str(), Code::kBadModel,
                  "path"));
  }
  CHECK(refused(pooling, "[]", Code::kBadModel, "object"));
  CHECK(refused(pooling, "{}", Code::kBadModel, "pooling_mode"));
  CHECK(refused(pooling, R"({"pooling_mode_mean_tokens": 1})", Code::kBadModel, "pooling_mode_mean_tokens"));
  CHECK(refused(pooling, R"({"pooling_mode_max_tokens": true})", Code::kUnsupported, "pooling_mode_max_tokens"));
  CHECK(refused(pooling, R"({"pooling_mode_cls_token": true, "pooling_mode_lasttoken": true})", Code::kUnsupported,
                "several"));
  CHECK(refused(pooling, R"({"pooling_mode": "best"})", Code::kUnsupported, "best"));
  CHECK(refused(pooling, R"({"pooling_mode": "mean", "include_prompt": "no"})", Code::kBadModel, "include_prompt"));
  CHECK(refused(prompts, R"({"prompts": {"query": 3}})", Code::kBadModel, "query"));
  CHECK(refused(prompts, R"({"prompts": {}, "default_prompt_name": "query"})", Code::kBadModel, "default_prompt_name"));
  CHECK(refused(prompts, R"({"prompts": []})", Code::kBadModel, "prompts"));
}
