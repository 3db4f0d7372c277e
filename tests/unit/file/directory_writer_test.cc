// SPDX-License-Identifier: MIT
#include "file/directory_writer.h"

#include <sys/stat.h>
#include <unistd.h>

#include "support/checkpoint_files.h"
#include "support/test.h"

namespace mainarch::file {
namespace {

bool Exists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

std::string Read(const std::string& path) {
  const auto text = ReadWholeFile(path, 1000);
  return text.ok() ? *text : std::string(text.status().message());
}

absl::Span<const uint8_t> Span(absl::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(files_appear_at_commit) {
  const std::string dir = test::ScratchDirectory() + "/d";
  auto writer = DirectoryWriter::Create(dir);
  CHECK_OK(writer);
  const auto file = (*writer)->Add("a", 5);
  CHECK_OK(file);
  CHECK_OK((*writer)->Write(*file, 3, Span("de")));
  CHECK_OK((*writer)->Write(*file, 0, Span("abc")));
  CHECK_OK((*writer)->AddText("b", "text"));
  CHECK(!Exists(dir + "/a"));
  CHECK_OK((*writer)->Commit());
  writer->reset();
  CHECK_EQ(Read(dir + "/a"), "abcde");
  CHECK_EQ(Read(dir + "/b"), "text");
  CHECK(!Exists(dir + "/.a.partial"));
}

TEST(without_commit_nothing_stays) {
  const std::string dir = test::ScratchDirectory() + "/d";
  {
    auto writer = DirectoryWriter::Create(dir);
    CHECK_OK(writer);
    CHECK_OK((*writer)->AddText("a", "x"));
    CHECK(Exists(dir + "/.a.partial"));
  }
  CHECK(!Exists(dir));
}

TEST(a_commit_that_fails_takes_back_what_it_renamed) {
  const std::string dir = test::ScratchDirectory();
  {
    auto writer = DirectoryWriter::Create(dir);
    CHECK_OK(writer);
    CHECK_OK((*writer)->AddText("a", "x"));
    CHECK_OK((*writer)->AddText("b", "x"));
    CHECK_EQ(mkdir((dir + "/b").c_str(), 0700), 0);  // in the way
    CHECK_REFUSED((*writer)->Commit(), Code::kIo, "rename", "/b");
  }
  CHECK(!Exists(dir + "/a"));
  CHECK(!Exists(dir + "/.b.partial"));
  CHECK(Exists(dir));  // it was there before
}

TEST(what_is_there_is_not_replaced) {
  const std::string dir = test::ScratchDirectory();
  CHECK(test::WriteFile(dir + "/a", "mine"));
  CHECK(test::WriteFile(dir + "/.b.partial", "of somebody else"));
  {
    auto writer = DirectoryWriter::Create(dir);
    CHECK_OK(writer);
    CHECK_REFUSED((*writer)->Add("a", 1), Code::kInvalidArgument, "/a", "exists");
    CHECK_REFUSED((*writer)->Add("b", 1), Code::kIo, ".b.partial", "File exists");
  }
  CHECK_EQ(Read(dir + "/a"), "mine");
  CHECK_EQ(Read(dir + "/.b.partial"), "of somebody else");
}

TEST(bad_directories_are_refused) {
  const std::string dir = test::ScratchDirectory();
  CHECK_REFUSED(DirectoryWriter::Create(dir + "/x/y"), Code::kIo, "/x/y", "No such file");
  CHECK(test::WriteFile(dir + "/file", ""));
  auto writer = DirectoryWriter::Create(dir + "/file");
  CHECK_OK(writer);
  CHECK_REFUSED((*writer)->AddText("a", ""), Code::kIo, "/file/.a.partial", "Not a directory");
  writer->reset();
  CHECK(Exists(dir + "/file"));
}

}  // namespace
}  // namespace mainarch::file
