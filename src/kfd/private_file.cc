// SPDX-License-Identifier: MIT
#include "kfd/private_file.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <vector>

namespace mainarch::kfd {
namespace {

struct Free {
  void operator()(char* text) const { free(text); }
};

}  // namespace

StatusOr<std::string> FindPrivateFile(absl::string_view name) {
  Dl_info info = {};
  void* entry = nullptr;
  if (dladdr1(reinterpret_cast<const void*>(&FindPrivateFile), &info, &entry, RTLD_DL_LINKMAP) == 0) {
    return Error(Code::kNotFound, "this library's own place is not known, so neither is ", name);
  }
  // The program itself has no name here.
  const std::string loaded = static_cast<const link_map*>(entry)->l_name;
  if (!loaded.empty() && loaded[0] != '/') {
    // The current directory may be another by now, and so the file.
    return Error(Code::kNotFound, "this library was loaded as '", loaded, "', a relative name, so ",
                 name, " cannot be found: load it by its full path");
  }
  const std::string self = loaded.empty() ? "/proc/self/exe" : loaded;
  const std::unique_ptr<char, Free> real(realpath(self.c_str(), nullptr));
  if (real == nullptr) return ErrnoError(Code::kNotFound, errno, "the place of ", self);
  const absl::string_view path = real.get();
  const absl::string_view folder = path.substr(0, path.rfind('/'));
  // Below the library as it is installed; beside it, as in a build tree; and where the library that
  // belongs to a command would have it. Nothing else above the own folder: that may be a stranger's.
  std::vector<std::string> places = {absl::StrCat(folder, "/mainarch/", name),
                                     absl::StrCat(folder, "/", name)};
  if (loaded.empty()) {
    places.insert(places.begin(), absl::StrCat(folder, "/../", MAINARCH_PRIVATE_DIR, "/", name));
  }
  for (const std::string& place : places) {
    struct stat found;
    if (stat(place.c_str(), &found) == 0) return place;
  }
  return Error(Code::kNotFound, "there is no ", places.front());
}

}  // namespace mainarch::kfd
