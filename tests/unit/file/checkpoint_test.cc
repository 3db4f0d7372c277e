// SPDX-License-Identifier: MIT
#include "file/checkpoint.h"

#include <sys/stat.h>
#include <unistd.h>

#include "file/index.h"
#include "support/checkpoint_files.h"
#include "support/test.h"

namespace mainarch::file {
namespace {

using test::Safetensors;
using test::ScratchDirectory;
using test::WriteFile;

// A directory with config.json and two shards: a, b in the first, c in the second.
std::string Sharded(const std::string& weight_map) {
  const std::string dir = ScratchDirectory();
  WriteFile(dir + "/config.json", "{}");
  WriteFile(dir + "/m1.safetensors", Safetensors({{"a", "U8", {1}, "A"}, {"b", "U8", {2}, "BB"}}));
  WriteFile(dir + "/m2.safetensors", Safetensors({{"c", "U8", {1}, "C"}}));
  WriteFile(dir + "/model.safetensors.index.json",
            "{\"metadata\":{\"total_size\":4},\"weight_map\":" + weight_map + "}");
  return dir;
}

constexpr char kGoodMap[] = R"({"a":"m1.safetensors","b":"m1.safetensors","c":"m2.safetensors"})";

TEST(a_single_file_is_read) {
  const std::string dir = ScratchDirectory();
  WriteFile(dir + "/config.json", "{\"x\":1}");
  WriteFile(dir + "/model.safetensors",
            Safetensors({{"z", "U8", {1}, "Z"}, {"a", "U8", {2}, "AA"}}));
  WriteFile(dir + "/tokenizer_config.json", "{\"t\":1}");
  const auto checkpoint = Checkpoint::Open(dir);
  CHECK_OK(checkpoint);
  CHECK_EQ((*checkpoint)->config_json(), "{\"x\":1}");
  CHECK_EQ((*checkpoint)->tokenizer_config_json(), "{\"t\":1}");
  CHECK_EQ((*checkpoint)->generation_config_json(), "");
  CHECK_EQ((*checkpoint)->tokenizer_json(), "");
  CHECK_EQ((*checkpoint)->tensors().size(), 2u);
  CHECK_EQ((*checkpoint)->tensors()[0].name, "a");  // sorted
  CHECK((*checkpoint)->Find("z") == &(*checkpoint)->tensors()[1]);
  CHECK((*checkpoint)->Find("y") == nullptr);
  CHECK_EQ((*checkpoint)->directory(), dir);
  struct stat info;
  CHECK_EQ(stat((dir + "/model.safetensors").c_str(), &info), 0);
  CHECK_EQ((*checkpoint)->file_bytes(), uint64_t(info.st_size));
}

TEST(chat_templates_in_files_are_read) {
  const std::string dir = ScratchDirectory();
  WriteFile(dir + "/config.json", "{}");
  WriteFile(dir + "/model.safetensors", Safetensors({{"z", "U8", {1}, "Z"}}));
  CHECK_EQ((*Checkpoint::Open(dir))->chat_templates().size(), 0u);
  WriteFile(dir + "/chat_template.jinja", "{{ d }}\n");
  CHECK_EQ(mkdir((dir + "/additional_chat_templates").c_str(), 0755), 0);
  WriteFile(dir + "/additional_chat_templates/tool_use.jinja", "t");
  WriteFile(dir + "/additional_chat_templates/rag.jinja", "r");
  WriteFile(dir + "/additional_chat_templates/README.md", "no template");
  const auto checkpoint = Checkpoint::Open(dir);
  CHECK_OK(checkpoint);
  std::string all;
  for (const ChatTemplateFile& file : (*checkpoint)->chat_templates()) {
    all += file.name + "=" + file.source + ";";
  }
  CHECK_EQ(all, "default={{ d }}\n;rag=r;tool_use=t;");
  WriteFile(dir + "/chat_template.jinja", std::string((size_t{256} << 10) + 1, 'x'));
  CHECK_REFUSED(Checkpoint::Open(dir), Code::kBadModel, "chat_template.jinja", "262144");
}

TEST(shards_are_read) {
  const std::string dir = Sharded(kGoodMap);
  const auto checkpoint = Checkpoint::Open(dir);
  CHECK_OK(checkpoint);
  CHECK_EQ((*checkpoint)->tensors().size(), 3u);
  CHECK_EQ((*checkpoint)->Find("c")->bytes[0], 'C');
  CHECK_EQ((*checkpoint)->Find("c")->file, dir + "/m2.safetensors");
}

TEST(symlinked_shards_are_read_as_the_hub_cache_has_them) {
  const std::string dir = Sharded(kGoodMap);
  CHECK_EQ(rename((dir + "/m2.safetensors").c_str(), (dir + "/blob").c_str()), 0);
  CHECK_EQ(symlink("blob", (dir + "/m2.safetensors").c_str()), 0);
  CHECK_OK(Checkpoint::Open(dir));
}

TEST(tensors_the_index_does_not_list_are_read_too) {
  const std::string dir = Sharded(R"({"a":"m1.safetensors","c":"m2.safetensors"})");
  const auto checkpoint = Checkpoint::Open(dir);
  CHECK_OK(checkpoint);
  CHECK((*checkpoint)->Find("b") != nullptr);
}

TEST(a_single_file_wins_over_an_index) {
  const std::string dir = Sharded(kGoodMap);
  WriteFile(dir + "/model.safetensors", Safetensors({{"s", "U8", {1}, "S"}}));
  const auto checkpoint = Checkpoint::Open(dir);
  CHECK_OK(checkpoint);
  CHECK_EQ((*checkpoint)->tensors().size(), 1u);
}

TEST(directories_without_a_checkpoint_are_refused) {
  const std::string dir = ScratchDirectory();
  CHECK_REFUSED(Checkpoint::Open(dir + "/none"), Code::kNotFound, "/none", "No such file");
  CHECK_REFUSED(Checkpoint::Open(dir), Code::kNotFound, "config.json");
  WriteFile(dir + "/config.json", "{}");
  CHECK_REFUSED(Checkpoint::Open(dir), Code::kNotFound, dir.c_str(), "model.safetensors",
                "model.safetensors.index.json");
  CHECK_REFUSED(Checkpoint::Open(dir + "/config.json"), Code::kBadModel, "config.json",
                "not GGUF");
  CHECK_EQ(mkdir((dir + "/model.safetensors").c_str(), 0700), 0);
  CHECK_REFUSED(Checkpoint::Open(dir), Code::kIo, "model.safetensors", "not a regular file");
}

TEST(a_fifo_does_not_hang) {
  const std::string dir = ScratchDirectory();
  CHECK_EQ(mkfifo((dir + "/config.json").c_str(), 0600), 0);
  CHECK_REFUSED(Checkpoint::Open(dir), Code::kIo, "config.json", "not a regular file");
}

TEST(oversized_texts_are_refused) {
  const std::string dir = Sharded(kGoodMap);
  for (const char* name : {"tokenizer_config.json", "generation_config.json", "config.json"}) {
    const std::string path = dir + "/" + name;
    WriteFile(path, "{}");
    CHECK_EQ(truncate(path.c_str(), (16 << 20) + 1), 0);  // sparse
    CHECK_REFUSED(Checkpoint::Open(dir), Code::kBadModel, name, "16777217", "limit of");
  }
}

TEST(missing_shards_are_refused) {
  const std::string dir = Sharded(kGoodMap);
  unlink((dir + "/m2.safetensors").c_str());
  CHECK_REFUSED(Checkpoint::Open(dir), Code::kBadModel, "model.safetensors.index.json",
                "\"m2.safetensors\"", "missing");
}

TEST(damaged_shards_are_refused) {
  const std::string dir = Sharded(kGoodMap);
  WriteFile(dir + "/m2.safetensors", Safetensors({{"c", "U8", {1}, "C"}}) + "x");
  CHECK_REFUSED(Checkpoint::Open(dir), Code::kBadModel, "m2.safetensors", "1 bytes after");
}

TEST(an_index_that_disagrees_with_the_shards_is_refused) {
  CHECK_REFUSED(Checkpoint::Open(Sharded(R"({"a":"m1.safetensors","d":"m2.safetensors"})")),
                Code::kBadModel, "index.json", "\"d\"", "\"m2.safetensors\"");
  CHECK_REFUSED(Checkpoint::Open(Sharded(R"({"a":"m2.safetensors","c":"m1.safetensors"})")),
                Code::kBadModel, "index.json", "\"a\"", "\"m2.safetensors\"", "m1.safetensors");
}

TEST(one_tensor_in_two_shards_is_refused) {
  const std::string dir = Sharded(kGoodMap);
  WriteFile(dir + "/m2.safetensors", Safetensors({{"c", "U8", {1}, "C"}, {"a", "U8", {1}, "X"}}));
  CHECK_REFUSED(Checkpoint::Open(dir), Code::kBadModel, "m1.safetensors", "m2.safetensors",
                "\"a\"");
}

TEST(index_files_are_checked) {
  const struct {
    const char* json;
    std::initializer_list<const char*> parts;
  } cases[] = {
      {"[]", {"an array"}},
      {"{}", {"\"weight_map\""}},
      {R"({"weight_map":[]})", {"weight_map is an array"}},
      {R"({"weight_map":{}})", {"weight_map is empty"}},
      {R"({"weight_map":{"a":1}})", {"\"a\"", "1, not a file name"}},
      {R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})", {"\"a\"", "twice"}},
      {R"({"weight_map":{"a":""}})", {"\"a\"", "empty"}},
      {R"({"weight_map":{"a":"../x.safetensors"}})", {"\"a\"", "../x.safetensors", "path"}},
      {R"({"weight_map":{"a":"/etc/x.safetensors"}})", {"\"a\"", "path"}},
      {R"({"weight_map":{"a":"d\\x.safetensors"}})", {"\"a\"", "path"}},
      {R"({"weight_map":{"a":"."}})", {"\"a\"", "dot"}},
      {R"({"weight_map":{"a":"..safetensors"}})", {"\"a\"", "dot"}},
      {R"({"weight_map":{"a":"x.bin"}})", {"\"x.bin\"", ".safetensors"}},
      {R"({"weight_map":{"a":"x\u0000.safetensors"}})", {"control"}},
  };
  for (const auto& one : cases) {
    const auto result = ParseCheckpointIndex(one.json, "i.json");
    CHECK_REFUSED(result, Code::kBadModel, "i.json");
    for (const char* part : one.parts) CHECK_REFUSED(result, Code::kBadModel, part);
  }
  const std::string longest(255 - 12, 'x');
  CHECK_OK(ParseCheckpointIndex(R"({"weight_map":{"a":")" + longest + R"(.safetensors"}})", "i"));
  CHECK_REFUSED(
      ParseCheckpointIndex(R"({"weight_map":{"a":"x)" + longest + R"(.safetensors"}})", "i.json"),
      Code::kBadModel, "255");
  std::string many = R"({"weight_map":{"t":"s.safetensors")";
  for (int i = 0; i < 4096; ++i) {
    const std::string n = std::to_string(i);
    many += ",\"" + n + "\":\"" + n + ".safetensors\"";
  }
  CHECK_REFUSED(ParseCheckpointIndex(many + "}}", "i.json"), Code::kBadModel, "4096 shards");
}

TEST(index_entries_point_at_sorted_shards) {
  const auto index = ParseCheckpointIndex(
      R"({"weight_map":{"a":"y.safetensors","b":"x.safetensors","c":"y.safetensors"}})", "i");
  CHECK_OK(index);
  CHECK_EQ(index->shards.size(), 2u);
  CHECK_EQ(index->shards[0], "x.safetensors");
  CHECK_EQ(index->entries.size(), 3u);
  CHECK_EQ(index->entries[0].shard, 1u);
  CHECK_EQ(index->entries[1].shard, 0u);
  CHECK_EQ(index->entries[2].tensor, "c");
}

}  // namespace
}  // namespace mainarch::file
