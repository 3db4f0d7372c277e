// SPDX-License-Identifier: MIT
#include "gpu/loader.h"

#include <cstring>

#include "gpu/process.h"

namespace mainarch::gpu {
namespace {

// Through host memory and a copy engine.
Status Upload(Device& device, CopyQueue& copy, uint64_t to, const std::vector<uint8_t>& image,
              Deadline deadline) {
  BufferOptions options;
  options.place = Place::kSystem;
  options.caching = Caching::kUncached;
  options.label = "code staging";
  ASSIGN_OR_RETURN(Buffer staging, Buffer::Allocate(device, image.size(), options));
  memcpy(staging.host(), image.data(), image.size());
  RETURN_IF_ERROR(copy.Copy(to, staging.va(), image.size(), deadline));
  ASSIGN_OR_RETURN(const uint64_t point, copy.Submit(deadline));
  return copy.Wait(point, deadline);
}

}  // namespace

StatusOr<std::unique_ptr<LoadedCode>> LoadedCode::Load(Queue& queue, const CodeObject& object,
                                                       const LoadOptions& options,
                                                       Deadline deadline) {
  Device& device = queue.device();
  RETURN_IF_ERROR(object.CheckRunsOn(device.chip(), options.scratch_bytes_per_lane));
  std::unique_ptr<LoadedCode> code(new LoadedCode);
  code->name_ = object.name();
  BufferOptions memory;
  memory.executable = true;
  memory.host_access = options.copy == nullptr;
  memory.label = "code";
  ASSIGN_OR_RETURN(code->memory_, Buffer::Allocate(device, object.image_size(), memory));
  const std::vector<uint8_t> image = object.Relocate(code->memory_.va());
  if (options.copy != nullptr) {
    RETURN_IF_ERROR(Upload(device, *options.copy, code->memory_.va(), image, deadline));
  } else {
    memcpy(code->memory_.host(), image.data(), image.size());
    RETURN_IF_ERROR(device.FlushHostWrites());
  }
  RETURN_IF_ERROR(queue.InvalidateCode(code->memory_.va(), code->memory_.size(), deadline));
  for (const CodeKernel& kernel : object.kernels()) {
    Kernel placed;
    placed.name = kernel.name;
    placed.object = code->memory_.va() + kernel.descriptor_vaddr;
    placed.entry =
        placed.object + static_cast<uint64_t>(kernel.descriptor.kernel_code_entry_byte_offset);
    placed.kernarg_bytes = kernel.kernarg_bytes;
    placed.group_bytes = kernel.descriptor.group_segment_fixed_size;
    // A dynamic stack gets all that the queue has.
    const bool unbounded =
        (kernel.descriptor.kernel_code_properties & isa::kPropertyDynamicStack) != 0;
    placed.private_bytes =
        unbounded ? options.scratch_bytes_per_lane : kernel.descriptor.private_segment_fixed_size;
    placed.max_workgroup = kernel.max_workgroup;
    code->kernels_.push_back(std::move(placed));
  }
  return code;
}

StatusOr<const Kernel*> LoadedCode::Find(absl::string_view name) const {
  for (const Kernel& kernel : kernels_) {
    if (kernel.name == name) return &kernel;
  }
  return Error(Code::kNotFound, "kernel \"", name, "\" is not in code object ", name_, " (",
               kernels_.size(), " kernels)");
}

}  // namespace mainarch::gpu
