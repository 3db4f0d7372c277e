// SPDX-License-Identifier: MIT
#include "base/fd.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>

#include "support/test.h"

using namespace mainarch;

TEST(files_of_proc_are_read_to_their_end) {
  // stat says they are empty.
  auto text = ReadWholeFile("/proc/self/status", 1 << 20);
  CHECK_OK(text);
  CHECK_GT(text->size(), 100u);
}

TEST(whole_file_up_to_its_limit) {
  const std::string path = test::ScratchDirectory() + "/file";
  std::ofstream(path) << std::string(10000, 'x');
  auto text = ReadWholeFile(path, 10000);
  CHECK_OK(text);
  CHECK_EQ(text->size(), 10000u);
  text = ReadWholeFile(path, 9999);
  CHECK(!text.ok());
  CHECK(text.status().message().find("9999") != absl::string_view::npos);
  std::ofstream(path, std::ios::trunc).flush();
  text = ReadWholeFile(path, 10);
  CHECK_OK(text);
  CHECK(text->empty());
}

TEST(what_is_no_regular_file_is_refused) {
  const std::string path = test::ScratchDirectory() + "/fifo";
  CHECK_EQ(mkfifo(path.c_str(), 0600), 0);
  CHECK_EQ(static_cast<int>(CodeOf(ReadWholeFile(path, 10).status())), static_cast<int>(Code::kIo));
  CHECK_EQ(static_cast<int>(CodeOf(Mapping::OfFile("/nonexistent").status())),
           static_cast<int>(Code::kNotFound));
  CHECK_EQ(static_cast<int>(CodeOf(ReadWholeFile("/", 10).status())), static_cast<int>(Code::kIo));
}

TEST(no_descriptor_left_is_no_error_of_the_file) {
  rlimit before;
  CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Status read = ReadWholeFile("/proc/self/status", 1 << 20).status();
  const Status mapped = Mapping::OfFile("/proc/self/exe").status();
  CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  CHECK_EQ(static_cast<int>(CodeOf(read)), static_cast<int>(Code::kOutOfHostMemory));
  CHECK_EQ(ErrnoOf(read), EMFILE);
  CHECK_EQ(static_cast<int>(CodeOf(mapped)), static_cast<int>(Code::kOutOfHostMemory));
}
