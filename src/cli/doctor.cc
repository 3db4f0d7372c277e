// SPDX-License-Identifier: MIT
#include "cli/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/json_writer.h"
#include "isa/chip.h"
#include "kfd/drm.h"
#include "kfd/ioctl.h"
#include "kfd/topology.h"
#include "kfd/uapi/kfd_sysfs.h"

namespace mainarch::cli {
namespace {

namespace uapi = kfd::uapi;

constexpr size_t kMaxText = 1 << 20;
constexpr char kPciDevices[] = "/sys/bus/pci/devices";
constexpr char kKfdProcesses[] = "/sys/devices/virtual/kfd/kfd/proc";

// PCI ids of the cards this library is for, and the first mainline kernel whose driver knows them.
struct KnownCard {
  uint32_t device;
  const char* name;
  const char* chip;
  int kernel_major;
  int kernel_minor;
};
constexpr KnownCard kCards[] = {
    {0x74a0, "MI300A", "gfx942", 6, 5},    {0x74a1, "MI300X", "gfx942", 6, 5},
    {0x74a2, "MI308X", "gfx942", 6, 5},    {0x74a5, "MI325X", "gfx942", 6, 5},
    {0x74b5, "MI300X VF", "gfx942", 6, 5}, {0x75a0, "MI350X", "gfx950", 6, 14},
    {0x75a3, "MI355X", "gfx950", 6, 14},
};

struct PciCard {
  std::string address;
  uint32_t device = 0;
  const KnownCard* known = nullptr;
};

std::string Line(kfd::Sys& sys, const std::string& path) {
  std::string text;
  if (sys.ReadFile(path, kMaxText, &text) < 0) return "";
  return std::string(absl::StripAsciiWhitespace(text));
}

uint32_t HexNumber(absl::string_view text) {
  uint32_t value = 0;
  absl::ConsumePrefix(&text, "0x");
  return absl::SimpleHexAtoi(text, &value) ? value : 0;
}

// AMD cards that compute: display controllers and accelerators that we know, or accelerators.
std::vector<PciCard> FindCards(kfd::Sys& sys) {
  std::vector<PciCard> cards;
  std::vector<std::string> names;
  if (sys.ListDir(kPciDevices, &names) < 0) return cards;
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string device = absl::StrCat(kPciDevices, "/", name);
    if (HexNumber(Line(sys, device + "/vendor")) != 0x1002) continue;
    PciCard card;
    card.address = name;
    card.device = HexNumber(Line(sys, device + "/device"));
    for (const KnownCard& known : kCards) {
      if (known.device == card.device) card.known = &known;
    }
    if (card.known != nullptr) cards.push_back(card);
  }
  return cards;
}

std::string GroupName(kfd::Sys& sys, uint32_t gid) {
  std::string text;
  if (sys.ReadFile("/etc/group", kMaxText, &text) < 0) return "";
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ':');
    uint32_t id = 0;
    if (fields.size() >= 3 && absl::SimpleAtoi(fields[2], &id) && id == gid) {
      return std::string(fields[0]);
    }
  }
  return "";
}

std::string ModeText(uint32_t mode) {
  std::string text = S_ISCHR(mode) ? "c" : "-";
  for (int bit = 8; bit >= 0; --bit) {
    text += (mode >> bit & 1) ? "rwxrwxrwx"[8 - bit] : '-';
  }
  return text;
}

class Doctor {
 public:
  explicit Doctor(kfd::Sys& sys) : sys_(sys) {}

  Diagnosis Run() {
    cards_ = FindCards(sys_);
    if (CheckDriver() && CheckTopology() && CheckKfdFile()) CheckGpus();
    return std::move(diagnosis_);
  }

 private:
  void Good(std::string what) { Add(Finding::Level::kGood, std::move(what), ""); }
  void Note(std::string what, std::string remedy) {
    Add(Finding::Level::kNote, std::move(what), std::move(remedy));
  }
  void Problem(std::string what, std::string remedy) {
    Add(Finding::Level::kProblem, std::move(what), std::move(remedy));
  }
  void Add(Finding::Level level, std::string what, std::string remedy) {
    diagnosis_.findings.push_back({level, std::move(what), std::move(remedy)});
  }

  bool CheckDriver();
  bool CheckTopology();
  bool CheckKfdFile();
  void CheckGpus();
  void CheckGpu(uint32_t index, const kfd::Node& node);
  void CheckMissingCards();
  void CheckMemory(uint32_t index, const kfd::Node& node);
  void CheckVersion(kfd::Kfd& kfd);
  bool ReportOpenError(const std::string& path, int err);
  void ReportAccess(const std::string& path);

  kfd::Sys& sys_;
  Diagnosis diagnosis_;
  std::vector<PciCard> cards_;
  kfd::Topology topology_;
};

// Is there a card, a module, and the module's compute part?
bool Doctor::CheckDriver() {
  kfd::FileStat stat;
  const bool kfd_there = sys_.Stat(uapi::kTopologyRoot, &stat) == 0;
  if (kfd_there) {
    Good("the kernel's GPU compute driver (kfd) is loaded");
    return true;
  }
  if (cards_.empty()) {
    Problem(
        "no AMD Instinct card that this library knows is on the PCI bus, and the GPU compute "
        "driver is not loaded",
        "mainarch generate --device cpu   (or --device sim:gfx950x8 for a virtual node)");
    return false;
  }
  std::vector<std::string> names;
  for (const PciCard& card : cards_) {
    names.push_back(absl::StrCat(card.known->name, " at ", card.address));
  }
  const std::string there = absl::StrJoin(names, ", ");
  if (sys_.Stat("/sys/module/amdgpu", &stat) != 0) {
    Problem(absl::StrCat(there, ": the kernel module amdgpu is not loaded"),
            "sudo modprobe amdgpu   (if it is not found: sudo apt install linux-image-amd64)");
  } else {
    Problem(absl::StrCat(there,
                         ": amdgpu is loaded without its compute part (kfd): the kernel was "
                         "built without CONFIG_HSA_AMD, or the driver refused every card"),
            "sudo dmesg | grep -i -e kfd -e amdgpu");
  }
  return false;
}

bool Doctor::CheckTopology() {
  auto topology = kfd::ReadTopology(sys_);
  if (!topology.ok()) {
    Problem(std::string(topology.status().message()), "sudo dmesg | grep -i kfd");
    return false;
  }
  topology_ = *std::move(topology);
  if (!topology_.hidden_nodes.empty()) {
    Note(
        absl::StrCat(topology_.hidden_nodes.size(),
                     " nodes are hidden from this process by its device cgroup"),
        "docker run --device=/dev/kfd --device=/dev/dri ...   (name every render node it may use)");
  }
  CheckMissingCards();
  if (!topology_.Gpus().empty()) return true;
  Problem("the driver lists no GPU", "sudo dmesg | grep -i -e kfd -e amdgpu");
  return false;
}

// Cards on the bus that the driver did not make a node of: usually a kernel older than the card.
void Doctor::CheckMissingCards() {
  if (!topology_.hidden_nodes.empty()) return;  // then it is not known which are missing
  const std::string release = Line(sys_, "/proc/sys/kernel/osrelease");
  const std::vector<std::string> parts = absl::StrSplit(release, absl::ByAnyChar(".-"));
  int major = 0, minor = 0;
  const bool known_release =
      parts.size() >= 2 && absl::SimpleAtoi(parts[0], &major) && absl::SimpleAtoi(parts[1], &minor);
  for (const PciCard& card : cards_) {
    bool listed = false;
    for (const kfd::Node* node : topology_.Gpus()) {
      listed |= node->properties.device_id == card.device;
    }
    if (listed) continue;
    const KnownCard& known = *card.known;
    const bool too_old =
        known_release &&
        (major < known.kernel_major || (major == known.kernel_major && minor < known.kernel_minor));
    if (too_old) {
      Problem(absl::StrFormat("%s at %s: kernel %s is too old for it, %s needs %d.%d or AMD's own "
                              "driver module",
                              known.name, card.address, release, known.chip, known.kernel_major,
                              known.kernel_minor),
              "sudo apt install -t bookworm-backports linux-image-amd64");
    } else {
      Problem(absl::StrCat(known.name, " at ", card.address,
                           ": the driver did not make a compute node of it"),
              absl::StrCat("sudo dmesg | grep ", card.address));
    }
  }
}

// Who may open it, and who asks.
void Doctor::ReportAccess(const std::string& path) {
  kfd::FileStat stat;
  if (sys_.Stat(path, &stat) < 0) return;
  const kfd::Identity who = sys_.WhoAmI();
  std::string group = GroupName(sys_, stat.gid);
  const bool member =
      who.gid == stat.gid || std::count(who.groups.begin(), who.groups.end(), stat.gid) > 0;
  const std::string access =
      absl::StrCat(path, " is ", ModeText(stat.mode), " uid ", stat.uid, " gid ", stat.gid,
                   group.empty() ? " (no such group here)" : absl::StrCat(" (", group, ")"),
                   "; this process is uid ", who.uid, " gid ", who.gid, " groups ",
                   who.groups.empty() ? "-" : absl::StrJoin(who.groups, ","));
  if (group.empty() || member) {
    Problem(absl::StrCat("permission denied: ", access),
            member ? "ls -l " + path + "   (a member, but the mode or a container denies it)"
                   : absl::StrCat("docker run --group-add ", stat.gid,
                                  " ...   (the group has no name inside this container)"));
    return;
  }
  Problem(absl::StrCat("permission denied: ", access),
          absl::StrCat("sudo usermod -aG ", group, " $USER   (then log in again)"));
}

// True when the error was explained.
bool Doctor::ReportOpenError(const std::string& path, int err) {
  switch (err) {
    case EACCES:
      ReportAccess(path);
      return true;
    case EPERM:
      Problem(path + ": denied by the device cgroup of this container or unit",
              "docker run --device=" + path + " ...");
      return true;
    case ENOENT:
      Problem(path + ": there is no such file, but the driver is loaded",
              "docker run --device=/dev/kfd --device=/dev/dri ...   (outside of a container: sudo "
              "udevadm trigger)");
      return true;
    case EINVAL:
      Problem(path + ": the driver is locked, by a GPU reset or a suspend",
              "sudo dmesg | grep -i -e reset -e amdgpu   (wait, then try again)");
      return true;
    case ENOMEM:
      Problem(path + ": the driver is loaded but supports no GPU of this machine",
              "sudo dmesg | grep -i kfd");
      return true;
    default:
      return false;
  }
}

bool Doctor::CheckKfdFile() {
  auto kfd = kfd::Kfd::Open(sys_);
  if (!kfd.ok()) {
    if (!ReportOpenError(uapi::kKfdDevice, ErrnoOf(kfd.status()))) {
      Problem(std::string(kfd.status().message()), "sudo dmesg | grep -i kfd");
    }
    return false;
  }
  Good(absl::StrCat(uapi::kKfdDevice, " can be opened"));
  CheckVersion(**kfd);
  return true;
}

void Doctor::CheckVersion(kfd::Kfd& kfd) {
  auto version = kfd.GetVersion();
  if (!version.ok()) {
    Problem(std::string(version.status().message()), "sudo dmesg | grep -i kfd");
    return;
  }
  std::vector<std::string> missing;
  if (version->minor < 13) missing.push_back("reports of why a queue died");
  if (version->minor < 14) missing.push_back("event ages");
  if (version->minor < 17) missing.push_back("queues on a chosen DMA engine");
  const std::string text = absl::StrCat("driver interface ", version->major, ".", version->minor);
  if (missing.empty()) {
    Good(text);
  } else {
    Note(absl::StrCat(text, " is old, it lacks: ", absl::StrJoin(missing, ", "),
                      "; everything works without them, peer copies slower"),
         "sudo apt install -t bookworm-backports linux-image-amd64");
  }
}

void Doctor::CheckGpus() {
  uint32_t index = 0;
  for (const kfd::Node* node : topology_.Gpus()) CheckGpu(index++, *node);
}

void Doctor::CheckGpu(uint32_t index, const kfd::Node& node) {
  const kfd::NodeProperties& p = node.properties;
  const std::string gfx = kfd::GfxName(p.gfx_target_version);
  const isa::ChipFacts* chip = isa::ChipByVersion(p.gfx_target_version);
  if (chip == nullptr || !chip->is_target) {
    Note(absl::StrCat("gpu ", index, " is ", gfx, ": this library has no code for it"),
         "mainarch generate --device cpu");
    return;
  }
  const uint32_t minor = static_cast<uint32_t>(p.drm_render_minor);
  auto render_node = kfd::RenderNode::Open(sys_, minor);
  if (!render_node.ok()) {
    if (!ReportOpenError(kfd::RenderNodePath(minor), ErrnoOf(render_node.status()))) {
      Problem(std::string(render_node.status().message()), "sudo dmesg | grep -i amdgpu");
    }
    return;
  }
  ++diagnosis_.usable_gpus;
  const kfd::CardFacts card = kfd::ReadCardFacts(sys_, minor);
  Good(absl::StrCat("gpu ", index, " (", gfx, ") can be used",
                    card.compute_partition.empty()
                        ? ""
                        : absl::StrCat(", ", card.compute_partition, "/", card.memory_partition)));
  if (!node.vram_is_host_visible()) {
    Note(absl::StrCat("gpu ", index,
                      ": small BAR, the CPU cannot map its memory; uploads go "
                      "through the DMA engines"),
         "enable \"Above 4G decoding\" and \"Resizable BAR\" in the firmware setup");
  }
  CheckMemory(index, node);
}

// Memory that others hold, by process where the driver tells.
void Doctor::CheckMemory(uint32_t index, const kfd::Node& node) {
  const kfd::CardFacts card =
      kfd::ReadCardFacts(sys_, static_cast<uint32_t>(node.properties.drm_render_minor));
  constexpr uint64_t kNoteworthy = uint64_t{1} << 30;
  if (card.vram_used < kNoteworthy) return;
  std::vector<std::string> holders;
  std::vector<std::string> pids;
  sys_.ListDir(kKfdProcesses, &pids);
  std::sort(pids.begin(), pids.end());
  for (const std::string& pid : pids) {
    uint64_t bytes = 0;
    if (!absl::SimpleAtoi(Line(sys_, absl::StrCat(kKfdProcesses, "/", pid, "/vram_", node.gpu_id)),
                          &bytes) ||
        bytes == 0) {
      continue;
    }
    holders.push_back(absl::StrCat("process ", pid, " (", Line(sys_, "/proc/" + pid + "/comm"),
                                   ") ", bytes >> 20, " MiB"));
  }
  Note(absl::StrCat("gpu ", index, ": ", card.vram_used >> 20, " of ", card.vram_total >> 20,
                    " MiB are in use",
                    holders.empty() ? "" : absl::StrCat(", by ", absl::StrJoin(holders, ", "))),
       holders.empty() ? "sudo fuser -v /dev/kfd" : "");
}

const char* LevelName(Finding::Level level) {
  switch (level) {
    case Finding::Level::kGood:
      return "ok";
    case Finding::Level::kNote:
      return "note";
    case Finding::Level::kProblem:
      return "problem";
  }
  return "";
}

}  // namespace

Diagnosis Diagnose(kfd::Sys& sys) { return Doctor(sys).Run(); }

int RunDoctor(kfd::Sys& sys, bool json, std::string* out) {
  const Diagnosis diagnosis = Diagnose(sys);
  if (json) {
    JsonWriter writer;
    writer.BeginObject();
    writer.Field("usable_gpus", static_cast<uint64_t>(diagnosis.usable_gpus));
    writer.Key("findings");
    writer.BeginArray();
    for (const Finding& finding : diagnosis.findings) {
      writer.BeginObject();
      writer.Field("level", LevelName(finding.level));
      writer.Field("what", finding.what);
      writer.Field("remedy", finding.remedy);
      writer.EndObject();
    }
    writer.EndArray();
    writer.EndObject();
    absl::StrAppend(out, writer.text(), "\n");
  } else {
    for (const Finding& finding : diagnosis.findings) {
      absl::StrAppendFormat(out, "%-8s %s\n", LevelName(finding.level), finding.what);
      if (!finding.remedy.empty()) absl::StrAppendFormat(out, "         -> %s\n", finding.remedy);
    }
    absl::StrAppendFormat(out, "%d usable GPU%s\n", diagnosis.usable_gpus,
                          diagnosis.usable_gpus == 1 ? "" : "s");
  }
  return diagnosis.usable_gpus > 0 ? 0 : 1;
}

}  // namespace mainarch::cli
